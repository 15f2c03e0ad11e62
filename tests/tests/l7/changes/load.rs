//! Requests of HTTP/1.1, h2c and gRPC from several clients, over both families, one after the other until stopped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use gateway_tests::backend::Said;
use gateway_tests::client::grpc;
use gateway_tests::client::http::{Connection, Protocol};
use gateway_tests::pattern::PatternBody;
use gateway_tests::topology::{Family, Host};
use gateway_tests::wait::eventually;
use http_body_util::BodyExt as _;
use tokio::sync::watch;

pub(crate) const HTTP_HOST: &str = "load.example";
pub(crate) const GRPC_HOST: &str = "grpc.example";

/// Between two requests of one task: the daemon must have time for changes on a machine of two processors.
const PAUSE: Duration = Duration::from_millis(10);

/// Bytes that a request of an echo carries: more than one segment.
const ECHOED: u64 = 20_000;

/// What one task does again and again.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// GET over one HTTP/1.1 connection.
    Http1,
    /// GET over an HTTP/1.1 connection for each.
    NewHttp1,
    /// POST over HTTP/1.1, the body comes back.
    Echo1,
    /// GET over one h2c connection.
    H2c,
    /// POST over h2c, the body comes back.
    Echo2,
    /// A unary call.
    Unary,
    /// A call that streams both ways.
    Chat,
}

const KINDS: [Kind; 7] =
    [Kind::Http1, Kind::NewHttp1, Kind::Echo1, Kind::H2c, Kind::Echo2, Kind::Unary, Kind::Chat];

/// Requests that run until they are stopped.
pub(crate) struct Load {
    stop: watch::Sender<bool>,
    /// Requests that succeeded, of each task.
    counts: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Starts one task of each kind, for each client and family; each has made a request when this returns.
    pub(crate) fn start(clients: &[Host]) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut load = Self { stop, counts: Vec::new(), threads: Vec::new() };
        for client in clients {
            let tasks: Vec<_> = Family::ALL
                .into_iter()
                .flat_map(|family| KINDS.map(|kind| (family, kind, Arc::<AtomicU64>::default())))
                .collect();
            load.counts.extend(tasks.iter().map(|(.., count)| Arc::clone(count)));
            let (name, stopped) = (client.name.clone(), stopped.clone());
            let thread = client.netns.spawn(move || run(&name, tasks, &stopped)).expect("a thread");
            load.threads.push(thread);
        }
        load.wait_for_a_request_of_each("the start");
        load
    }

    /// Waits until each task has made a request that began after now.
    #[track_caller]
    pub(crate) fn wait_for_a_request_of_each(&self, change: &str) {
        let read = || self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let then: Vec<u64> = read().collect();
        eventually(Duration::from_secs(15), "requests of the load", || {
            // A failed one stops a thread; its requests are told at the end.
            let ended = self.threads.iter().any(JoinHandle::is_finished);
            // The one under way may have begun before.
            let waiting = read().zip(&then).filter(|(now, then)| *now < **then + 2).count();
            ensure!(ended || waiting == 0, "{change}: {waiting} tasks have made no request since");
            Ok::<_, anyhow::Error>(())
        });
    }

    /// Ends all tasks; how many requests there were, and what failed.
    pub(crate) fn stop(self) -> (u64, Vec<String>) {
        self.stop.send_replace(true);
        let failures = self.threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
        let failures = failures.collect();
        (self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum(), failures)
    }
}

/// Runs the tasks of one client; returns what failed. The first failure ends all of them.
fn run(
    client: &str,
    tasks: Vec<(Family, Kind, Arc<AtomicU64>)>,
    stopped: &watch::Receiver<bool>,
) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut running = tokio::task::JoinSet::new();
        for (family, kind, count) in tasks {
            let (name, stopped) = (format!("{client}, {family}, {kind:?}"), stopped.clone());
            running.spawn(async move {
                let ended = repeat(family, kind, &count, &stopped).await;
                ended.with_context(|| format!("{name}, request {}", count.load(Ordering::Relaxed) + 1))
            });
        }
        let mut failures = Vec::new();
        while let Some(ended) = running.join_next().await {
            if let Err(error) = ended.expect("no panic") {
                failures.push(format!("{error:#}"));
                running.abort_all();
                break;
            }
        }
        failures
    })
}

async fn repeat(
    family: Family,
    kind: Kind,
    count: &AtomicU64,
    stopped: &watch::Receiver<bool>,
) -> Result<()> {
    let to = SocketAddr::new(family.service_address(1), 80);
    let mut client = Client::open(kind, to).await?;
    while !*stopped.borrow() {
        client.one(kind, to).await?;
        count.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

enum Client {
    Http(Connection),
    Grpc(Box<grpc::Client>),
}

impl Client {
    async fn open(kind: Kind, to: SocketAddr) -> Result<Self> {
        let protocol = match kind {
            Kind::Http1 | Kind::NewHttp1 | Kind::Echo1 => Protocol::Http1,
            Kind::H2c | Kind::Echo2 => Protocol::H2c,
            Kind::Unary | Kind::Chat => {
                let client = grpc::Client::connect(to, GRPC_HOST, "gatewayd.lab.Echo").await?;
                return Ok(Self::Grpc(Box::new(client)));
            }
        };
        Connection::open(to, &protocol).await.map(Self::Http)
    }

    /// One request, and whether its answer is whole and right.
    async fn one(&mut self, kind: Kind, to: SocketAddr) -> Result<()> {
        match self {
            Self::Http(connection) => match kind {
                Kind::Echo1 | Kind::Echo2 => echo(connection).await,
                Kind::NewHttp1 => {
                    *connection = Connection::open(to, &Protocol::Http1).await?;
                    get(connection).await
                }
                _ => get(connection).await,
            },
            Self::Grpc(client) => call(client, kind).await,
        }
    }
}

async fn get(connection: &mut Connection) -> Result<()> {
    let answer = connection.get(&format!("http://{HTTP_HOST}/some/path")).await?;
    let report = answer.report()?;
    ensure!(answer.status.as_u16() == 200 && report.path == "/some/path", "{}: {report:?}", answer.status);
    Ok(())
}

async fn echo(connection: &mut Connection) -> Result<()> {
    let request = http::Request::post(format!("http://{HTTP_HOST}/echo"));
    let body = PatternBody::new(ECHOED).boxed_unsync();
    let answer = connection.ask(request.body(body)?).await?;
    ensure!(answer.status.as_u16() == 200, "{}: {:?}", answer.status, answer.body);
    let mut check = gateway_tests::pattern::Check::default();
    check.take(&answer.body)?;
    ensure!(check.position == ECHOED, "{} bytes came back", check.position);
    Ok(())
}

async fn call(client: &mut grpc::Client, kind: Kind) -> Result<()> {
    let said = |count| Said { backend: String::new(), text: "words".to_owned(), count };
    if matches!(kind, Kind::Chat) {
        let answers = client.chat("Chat", vec![said(1), said(2), said(3)]).await?;
        ensure!(answers.iter().map(|one| one.count).eq(1..=3), "{answers:?}");
    } else {
        let answer = client.unary("Unary", said(7)).await?;
        ensure!((answer.text.as_str(), answer.count) == ("words", 7), "{answer:?}");
    }
    Ok(())
}
