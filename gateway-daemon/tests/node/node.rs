//! A node of its own for a test: network namespaces, a state directory and a BPF file system, all gone at its end.

use std::{
    fs::File,
    future::Future,
    net::IpAddr,
    os::fd::AsFd as _,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use gateway_daemon::{
    l4::{self, Kernel, Options},
    net::{Device, Network},
    record::Record,
};
use rtnetlink::{Handle, LinkBridge, LinkUnspec, LinkVeth};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// How long to wait for what the kernel does in its own time.
const PATIENCE: Duration = Duration::from_secs(10);

/// A node with a veth `near` whose other end `far` is in another namespace, both up; and a bridge `plain`, which has no native XDP.
pub(crate) struct Node {
    pub(crate) network: Network,
    far: File,
    near: File,
    folder: tempfile::TempDir,
}

/// Runs a test on a node of its own, on a thread of its own.
pub(crate) fn on_node<F: Future<Output = ()>>(test: impl FnOnce(Node) -> F + Send + 'static) {
    assert!(rustix::process::geteuid().is_root(), "this test makes network namespaces: run it as root");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A whole table is read as one value, which an unoptimised build copies on the stack a few times.
    let thread = thread::Builder::new().stack_size(16 << 20).spawn(move || {
        runtime.block_on(async {
            let node = Node::new().await;
            test(node).await;
        });
    });
    if let Err(panic) = thread.unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

impl Node {
    async fn new() -> Self {
        let (far, far_handle) = namespace();
        let (near, handle) = namespace();
        let links = handle.link();
        links.add(LinkVeth::new("near", "far").build()).execute().await.unwrap();
        links.add(LinkBridge::new("plain").build()).execute().await.unwrap();
        let node =
            Self { network: Network::open().unwrap(), far, near, folder: tempfile::tempdir().unwrap() };
        let index = node.device("far").await.index;
        let move_far =
            LinkUnspec::new_with_index(index).setns_by_fd(std::os::fd::AsRawFd::as_raw_fd(&node.far));
        links.set(move_far.build()).execute().await.unwrap();
        for (handle, name) in [(&handle, "lo"), (&handle, "near"), (&handle, "plain"), (&far_handle, "far")] {
            handle.link().set(LinkUnspec::new_with_name(name).up().build()).execute().await.unwrap();
        }
        node.enter_near();
        node
    }

    /// Does something in the other namespace.
    pub(crate) async fn in_far<F: Future>(&self, work: impl FnOnce(Network) -> F) -> F::Output {
        move_into_link_name_space(self.far.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        let output = work(Network::open().unwrap()).await;
        self.enter_near();
        output
    }

    fn enter_near(&self) {
        move_into_link_name_space(self.near.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    pub(crate) async fn device(&self, name: &str) -> Device {
        device(&self.network, name).await
    }

    pub(crate) fn record(&self) -> Record {
        Record::open(&self.folder.path().join("state")).unwrap()
    }

    pub(crate) fn pin_dir(&self) -> PathBuf {
        self.folder.path().join("pins")
    }

    pub(crate) fn open_kernel(&self) -> Kernel {
        self.try_open_kernel().unwrap_or_else(|error| panic!("{}", with_causes(&error)))
    }

    pub(crate) fn try_open_kernel(&self) -> Result<Kernel, l4::Error> {
        // Small flow maps: a test has a handful of flows, and the kernel allocates for all.
        Kernel::open(&Options { max_flows: 4_096, ..Options::new(self.pin_dir()) }, &mut self.record())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let cleanup = l4::cleanup(&self.pin_dir(), &mut self.record());
        if !thread::panicking() {
            cleanup.unwrap();
        }
    }
}

pub(crate) async fn device(network: &Network, name: &str) -> Device {
    let devices = network.devices().await.unwrap();
    devices.into_iter().find(|device| device.name == name).unwrap_or_else(|| panic!("no device {name}"))
}

/// Puts an address on a device of the thread's namespace.
pub(crate) async fn add_address(name: &str, address: &str, prefix: u8) {
    let handle = handle();
    let index = device(&Network::open().unwrap(), name).await.index;
    let address: IpAddr = address.parse().unwrap();
    let mut request = handle.address().add(index, address, prefix);
    request.message_mut().attributes.push(rtnetlink::packet_route::address::AddressAttribute::Flags(
        rtnetlink::packet_route::address::AddressFlags::Nodad,
    ));
    request.execute().await.unwrap();
}

/// A plain netlink handle of the thread's namespace.
pub(crate) fn handle() -> Handle {
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    handle
}

/// Asks until the answer is yes.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !check().await {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Makes a namespace and leaves the thread in it.
fn namespace() -> (File, Handle) {
    // SAFETY: the thread shares no file descriptor table that this flag would unshare; it only changes namespace.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
    (File::open("/proc/thread-self/ns/net").unwrap(), handle())
}
