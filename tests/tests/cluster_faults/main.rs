//! What goes wrong between gatewayd and an API server costs no request and no connection, and statuses are right
//! afterwards.
//!
//! All faults on one stand, one after the other, under load: a control plane of its own for each would take longer
//! than all of them.
// Not `required-features`: cargo refuses `--test "*"`, which runs all others, where a test lacks its own.
#![cfg(feature = "cluster")]
#![expect(clippy::unwrap_used, reason = "a failure anywhere in a test is the test's")]

mod daemon;
mod scene;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use gateway_tests::client::http::{Connection, Protocol};
use gateway_tests::client::steady::Steady;
use gateway_tests::client::streams::Streams;
use gateway_tests::cluster::{Fault, Ill, POD_BRIDGE, StandOptions, Standing, UPLINK, Write};
use gateway_tests::netns::Netns;
use gateway_tests::tls::Identity;
use gateway_tests::wait::eventually;
use serde_json::{Value, json};

use self::daemon::Daemon;
use self::scene::{NAME, Scene, TLS_URI, URI, differences, http_route, secret, tcp_route, timeless};

const SOON: Duration = Duration::from_secs(60);

const STREAMS: usize = 8;

/// So often a client meets a fault before it is over: each kind's watch more than once.
const OFTEN: u64 = 40;

/// Whatever the API server does, it is not asked more often.
const MOST_REQUESTS_A_SECOND: u64 = 200;

#[test]
fn no_fault_of_the_api_server_costs_a_request_or_a_connection() {
    let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults");
    let (stand, pods) = Standing::start(StandOptions::of_tests(&state).unwrap(), 2).unwrap();
    let identities = [Identity::for_names(&[NAME]).unwrap(), Identity::for_names(&[NAME]).unwrap()];
    let (node, second_node) = (Arc::clone(&stand.node), Arc::clone(&stand.second_node));
    let mut scene = Scene::create(stand, pods, state.clone(), &identities[0]);
    let mut daemon = Daemon::start(&scene.stand, &state, "first", &node, &[UPLINK, POD_BRIDGE]);
    scene.wait_until_served();
    {
        let mut test = Faults::under_load(&scene, &identities);
        for fault in [
            Fault::Gone,
            Fault::Expired,
            Fault::Answers(429),
            Fault::Answers(500),
            Fault::Garbage,
            Fault::EndsWatches,
            Fault::Hangs,
        ] {
            test.ill_towards_its_client(&daemon, fault);
        }
        test.api_server_killed(&daemon);
        test.etcd_stands_still(&daemon);
        test.certificate_rotated(&identities[1]);
        test.kind_removed_and_back();
        test.many_objects_change_at_once(&daemon);
        test.gatewayd_killed(&mut daemon);
        test.end();
    }
    // No fault was long enough; a watch of what never changes is silent for as long as it lasts.
    let log = daemon.log();
    let given_up: Vec<&str> =
        log.lines().filter(|line| line.contains("reading a body from connection: timed out")).collect();
    assert!(given_up.is_empty(), "watches were taken for dead: {given_up:#?}");
    leader_killed(&scene, daemon, &state, &second_node);
}

/// A scene with clients that never rest.
struct Faults<'a> {
    scene: &'a Scene,
    http: Steady,
    https: Steady,
    streams: Streams,
    version: u32,
}

impl<'a> Faults<'a> {
    fn under_load(scene: &'a Scene, identities: &[Identity; 2]) -> Self {
        let client = &scene.stand.control;
        let trusted: Vec<&Identity> = identities.iter().collect();
        let tls = Identity::client_of(&trusted, &["h2", "http/1.1"]).unwrap();
        let http = Steady::start(client, (scene.at(80), URI), &Protocol::Http1, 4).unwrap();
        let tls = Protocol::Tls(tls, NAME.to_owned());
        let https = Steady::start(client, (scene.at(443), TLS_URI), &tls, 2).unwrap();
        let streams = Streams::start(client, scene.at(9000), STREAMS).unwrap();
        let faults = Self { scene, http, https, streams, version: 0 };
        faults.load_goes_on("before anything happens");
        faults
    }

    /// Every client gets on, and nothing has failed.
    #[track_caller]
    fn load_goes_on(&self, when: &str) {
        self.http.wait_for_answers(50);
        self.https.wait_for_answers(20);
        self.streams.wait_for_rounds(5, STREAMS);
        assert_eq!(self.http.take_failures(), Vec::<String>::new(), "HTTP, {when}");
        assert_eq!(self.https.take_failures(), Vec::<String>::new(), "HTTPS, {when}");
    }

    /// Changes the route. Whether it is served already is another question.
    fn change(&mut self) {
        self.version += 1;
        self.scene.apply(&[http_route(self.version)]);
    }

    fn ill_towards_its_client(&mut self, daemon: &Daemon<'_>, fault: Fault) {
        eprintln!("--- the API server is ill: {fault:?}");
        let (before, begin) = (self.scene.statuses().unwrap(), Instant::now());
        let met = daemon.proxy.faults_met();
        daemon.proxy.set(fault);
        if fault == Fault::Hangs {
            // Watches are silent; what shows it is the Lease.
            daemon.wait_until_leads(false);
        } else {
            eventually(SOON, "the fault to be met", || {
                let now = daemon.proxy.faults_met() - met;
                ensure!(now >= OFTEN, "{now} times");
                Ok(())
            });
        }
        self.change();
        self.load_goes_on("while the API server is ill");
        let met = daemon.proxy.faults_met() - met;
        daemon.proxy.set(Fault::None);
        let most = MOST_REQUESTS_A_SECOND * (begin.elapsed().as_secs() + 2);
        assert!(met <= most, "met {met} times, which is more than {most}: the API server is hammered");
        self.well_again(daemon, &before);
    }

    fn well_again(&self, daemon: &Daemon<'_>, before: &scene::Seen) {
        self.scene.wait_for_version(self.version);
        daemon.wait_until_leads(true);
        self.scene.wait_for_statuses(before);
        self.load_goes_on("after it is over");
    }

    fn api_server_killed(&mut self, daemon: &Daemon<'_>) {
        eprintln!("--- the API server is killed");
        let before = self.scene.statuses().unwrap();
        self.scene.stand.make(Ill::KillApiServer).unwrap();
        daemon.wait_until_leads(false);
        self.load_goes_on("without an API server");
        self.scene.stand.make(Ill::StartApiServer).unwrap();
        self.change();
        self.well_again(daemon, &before);
    }

    /// For so long that requests run into their deadlines.
    fn etcd_stands_still(&mut self, daemon: &Daemon<'_>) {
        eprintln!("--- etcd stands still");
        let before = self.scene.statuses().unwrap();
        let begin = Instant::now();
        self.scene.stand.make(Ill::PauseEtcd).unwrap();
        daemon.wait_until_leads(false);
        while begin.elapsed() < Duration::from_secs(30) {
            self.load_goes_on("while etcd stands still");
        }
        self.scene.stand.make(Ill::ResumeEtcd).unwrap();
        eventually(SOON, "the API server to take writes again", || {
            self.scene.stand.kubectl(&["annotate", "gateway/edge", "--overwrite", "example.com/after=pause"])
        });
        self.change();
        self.well_again(daemon, &before);
    }

    fn certificate_rotated(&self, newer: &Identity) {
        eprintln!("--- the certificate is another one");
        let before = self.scene.statuses().unwrap();
        self.scene.apply(&[secret(newer)]);
        let protocol = Protocol::Tls(newer.client(&["http/1.1"]).unwrap(), NAME.to_owned());
        eventually(SOON, "the new certificate", || {
            let ask = || async {
                Connection::open(self.scene.at(443), &protocol).await?.get(TLS_URI).await?.report()
            };
            self.scene.stand.control.block_on(ask)
        });
        self.load_goes_on("with a new certificate");
        self.scene.wait_for_statuses(&before);
    }

    /// Kubernetes deletes the objects with their kind, and gatewayd follows: connections that there are go on, as long
    /// as they drain.
    fn kind_removed_and_back(&self) {
        eprintln!("--- a kind is removed, and comes back");
        let (kubectl, before) =
            (|arguments: &[&str]| self.scene.stand.kubectl(arguments), self.scene.statuses());
        let crd = "tcproutes.gateway.networking.k8s.io";
        let text = kubectl(&["get", "crd", crd, "--output=json"]).unwrap();
        let mut definition: Value = serde_json::from_str(&text).unwrap();
        definition.as_object_mut().unwrap().remove("status");
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
            definition["metadata"].as_object_mut().unwrap().remove(field);
        }
        kubectl(&["delete", "crd", crd, "--timeout=60s"]).unwrap();
        eventually(SOON, "the Gateway to have no TCPRoute", || self.attached_tcp_routes(0));
        self.load_goes_on("without a kind");
        self.scene.apply(&[definition]);
        kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", crd]).unwrap();
        eventually(SOON, "the API server to take the kind", || kubectl(&["get", "tcproutes"]));
        self.scene.apply(&[tcp_route()]);
        let before = timeless(before.unwrap());
        eventually(SOON, "statuses as they were", || differences(&before, &timeless(self.scene.statuses()?)));
        self.load_goes_on("with the kind again");
        // New connections reach it as well.
        let more = Streams::start(&self.scene.stand.control, self.scene.at(9000), 2).unwrap();
        assert!(more.stop().unwrap().iter().all(|report| report.failure.is_none()));
    }

    fn attached_tcp_routes(&self, wanted: u64) -> anyhow::Result<()> {
        let gateway: Value =
            serde_json::from_str(&self.scene.stand.kubectl(&["get", "gateway", "edge", "--output=json"])?)?;
        let attached = &gateway["status"]["listeners"][2]["attachedRoutes"];
        ensure!(*attached == wanted, "{attached} are attached");
        Ok(())
    }

    /// 1,000 routes are changed while watches hear nothing; then all of it comes at once.
    fn many_objects_change_at_once(&self, daemon: &Daemon<'_>) {
        const MANY: u32 = 1000;
        eprintln!("--- {MANY} objects change");
        let routes = |port: u32| -> Vec<Value> {
            let route = |number| {
                let mut route = http_route(port);
                route["metadata"]["name"] = json!(format!("many-{number:04}"));
                route["spec"]["hostnames"] = json!([format!("many-{number:04}.example.com")]);
                route
            };
            (0..MANY).map(route).collect()
        };
        let generation = || daemon.metric("gatewayd_generation").unwrap();
        let publications = || daemon.metric("gatewayd_event_to_served_seconds_count").unwrap();
        self.scene.apply(&routes(1));
        eventually(3 * SOON, "the statuses of all", || self.scene.statuses().map(drop));
        let before = self.scene.statuses().unwrap();
        assert_eq!(before.keys().filter(|id| id.contains("/many-")).count(), 1000);
        let (old, published) = (generation(), publications());
        daemon.proxy.set(Fault::Hangs);
        self.scene.apply(&routes(2));
        let begin = Instant::now();
        daemon.proxy.set(Fault::None);
        eventually(SOON, "the last one to be served", || self.serves_many(999, 2));
        let took = begin.elapsed();
        let (generations, published) = (generation() - old, publications() - published);
        eventually(3 * SOON, "the statuses of all", || differences(&before, &self.scene.statuses()?));
        eprintln!("served after {took:?}, in {generations} generations of {published} publications");
        assert!(published < 20.0, "{published} publications for one burst");
        self.load_goes_on("while objects change");
    }

    fn serves_many(&self, number: u32, version: u32) -> anyhow::Result<()> {
        let uri = format!("http://many-{number:04}.example.com/");
        let answer = self.scene.stand.control.block_on(|| async {
            Connection::open(self.scene.at(80), &Protocol::Http1).await?.get(&uri).await
        })?;
        let found = answer.headers.get("x-version").cloned();
        ensure!(found.as_ref().is_some_and(|one| *one == version.to_string().as_str()), "{found:?}");
        Ok(())
    }

    /// TCP goes on without gatewayd, HTTP is back with it, and it finds nothing to write.
    fn gatewayd_killed(&mut self, daemon: &mut Daemon<'_>) {
        eprintln!("--- gatewayd is killed");
        let (before, versions) = (self.scene.statuses().unwrap(), self.scene.versions());
        let written = daemon.proxy.writes().len();
        daemon.kill();
        self.streams.wait_for_rounds(20, STREAMS);
        daemon.run();
        daemon.wait_until_leads(true);
        // What was under way while nobody answered was cut by this test.
        self.http.wait_for_answers(50);
        self.https.wait_for_answers(20);
        drop((self.http.take_failures(), self.https.take_failures()));
        self.load_goes_on("after a restart");
        self.scene.wait_for_statuses(&before);
        // Statuses are written in the order in which reasons for them are heard: had the start been one, its would
        // have come before this one.
        self.change();
        self.scene.wait_for_version(self.version);
        self.scene.wait_for_statuses(&before);
        let changed = |writes: &[Write]| -> BTreeSet<String> {
            writes.iter().map(|write| write.request.clone()).collect()
        };
        let route = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes/web/status";
        let wanted = BTreeSet::from([format!("PATCH {route}")]);
        assert_eq!(changed(&daemon.proxy.writes()[written..]), wanted);
        let mut after = self.scene.versions();
        let web = "gateway.networking.k8s.io/v1 HTTPRoute default/web";
        assert_ne!(after[web], versions[web]);
        after.insert(web.to_owned(), versions[web].clone());
        differences(&versions, &after).unwrap();
    }

    /// No connection was lost, whatever happened.
    fn end(self) {
        let reports = self.streams.stop().unwrap();
        let failed: Vec<_> = reports.iter().filter(|report| report.failure.is_some()).collect();
        assert!(failed.is_empty(), "{failed:#?}");
        assert!(reports.iter().all(|report| report.rounds > 100), "{reports:#?}");
    }
}

/// The writer is cut off and another takes over; the first comes back, and the second is killed. Never do both write.
fn leader_killed(scene: &Scene, mut first: Daemon<'_>, state: &Path, node: &Netns) {
    eprintln!("--- the leader is killed");
    let before = scene.statuses().unwrap();
    let second = Daemon::start(&scene.stand, state, "second", node, &[UPLINK]);
    first.wait_until_leads(true);
    second.wait_until_leads(false);
    // Something to write, every now and then, until the other one has written.
    let mut version = 10_000;
    let mut writes_of = |daemon: &Daemon<'_>, what: &str| {
        let written = daemon.proxy.status_writes().len();
        eventually(SOON, what, || {
            version += 1;
            scene.apply(&[http_route(version)]);
            ensure!(daemon.proxy.status_writes().len() > written, "it does not");
            Ok(())
        });
    };
    writes_of(&first, "the first to write");
    assert_eq!(second.proxy.status_writes().len(), 0);
    // Cut off, it stops by itself.
    first.proxy.set(Fault::Hangs);
    writes_of(&second, "the second to write");
    first.wait_until_leads(false);
    let taken_over = second.proxy.status_writes()[0].at;
    first.proxy.set(Fault::None);
    writes_of(&second, "the second to go on");
    let late: Vec<Write> =
        first.proxy.status_writes().into_iter().filter(|write| write.at > taken_over).collect();
    assert!(late.iter().all(|write| !write.status.is_success()), "both wrote: {late:?}");
    // The other way round, by force.
    let mut second = second;
    second.kill();
    writes_of(&first, "the first to write again");
    first.wait_until_leads(true);
    scene.wait_for_statuses(&before);
    first.kill();
}
