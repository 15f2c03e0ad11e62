//! Which node writes: the holder of a Lease.
//!
//! The holder renews the Lease every [`RENEW`]; a node that has seen it unchanged for its whole duration takes it over.
//! Each change carries the version it was made of, so that of two nodes that try only one succeeds. A holder that
//! cannot renew stops writing before anybody else can begin.

use std::time::{Duration, SystemTime};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// Name of the Lease, in the namespace that the client is in.
const NAME: &str = "gatewayd";
/// How long a holder that is silent is waited for.
const DURATION: Duration = Duration::from_secs(6);
/// How often it is renewed, or looked at.
const RENEW: Duration = Duration::from_millis(1500);
/// After so long without having renewed it, a holder does not count itself as one.
const DEADLINE: Duration = Duration::from_secs(4);
/// How long the API server may take for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// A candidate, until this is dropped.
#[derive(Debug)]
pub struct Election {
    leads: watch::Receiver<bool>,
    api: Api<DynamicObject>,
    identity: String,
    _task: AbortOnDropHandle<()>,
}

impl Election {
    /// Stands for election, on the current runtime. `identity` must be no other candidate's.
    pub fn stand(client: Client, identity: String) -> Self {
        let resource = ApiResource {
            group: "coordination.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "coordination.k8s.io/v1".to_owned(),
            kind: "Lease".to_owned(),
            plural: "leases".to_owned(),
        };
        let api: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
        let (tell, leads) = watch::channel(false);
        let candidate =
            Candidate { api: api.clone(), resource, identity: identity.clone(), seen: None, tell };
        Self { leads, api, identity, _task: AbortOnDropHandle::new(tokio::spawn(candidate.run())) }
    }

    /// Whether this node is the one.
    pub fn leads(&self) -> watch::Receiver<bool> {
        self.leads.clone()
    }

    /// Ends it; if this node is the one, another can begin at once.
    pub async fn resign(self) {
        let led = *self.leads.borrow();
        let Self { api, identity, _task: task, .. } = self;
        drop(task);
        if !led {
            return;
        }
        let release = async {
            let lease = api.get(NAME).await?;
            if lease.data["spec"]["holderIdentity"] != identity {
                return Ok(());
            }
            patch(&api, &lease, json!({"holderIdentity": ""})).await
        };
        match timeout(ANSWER, release).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::info!(%error, "the Lease is left to run out"),
            Err(_late) => tracing::info!("the Lease is left to run out: no answer"),
        }
    }
}

struct Candidate {
    api: Api<DynamicObject>,
    resource: ApiResource,
    identity: String,
    /// The version of the Lease as seen last, and when it was first seen.
    seen: Option<(String, Instant)>,
    tell: watch::Sender<bool>,
}

/// What to do about the Lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Move {
    /// It is ours and stays so.
    Renew,
    /// It is nobody's, or its holder has been silent for too long.
    Take,
    /// Somebody else has it.
    Wait,
}

impl Candidate {
    async fn run(mut self) {
        let mut renewed: Option<Instant> = None;
        let mut ticks = tokio::time::interval(RENEW);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let asked = Instant::now();
            match timeout(ANSWER, self.round(asked)).await {
                Ok(Ok(holds)) => renewed = holds.then_some(asked),
                Ok(Err(error)) => tracing::debug!(%error, "cannot ask for the Lease"),
                Err(_late) => tracing::debug!("cannot ask for the Lease: no answer"),
            }
            let leads = renewed.is_some_and(|renewed| renewed.elapsed() < DEADLINE);
            let changed = self.tell.send_if_modified(|led| std::mem::replace(led, leads) != leads);
            if changed && leads {
                tracing::info!(identity = self.identity, "this node writes statuses from now on");
            } else if changed {
                tracing::warn!(identity = self.identity, "this node does not write statuses any more");
            }
        }
    }

    /// One look at the Lease, and what follows from it. Says whether it is ours.
    async fn round(&mut self, now: Instant) -> Result<bool, kube::Error> {
        let Some(lease) = self.api.get_opt(NAME).await? else {
            let mut lease = DynamicObject::new(NAME, &self.resource);
            let time = micros();
            lease.data = json!({"spec": {
                "holderIdentity": self.identity, "leaseDurationSeconds": DURATION.as_secs(),
                "acquireTime": time, "renewTime": time, "leaseTransitions": 0,
            }});
            return lost_or(self.api.create(&PostParams::default(), &lease).await.map(drop));
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            _ => now,
        };
        self.seen = Some((version, since));
        let spec = &lease.data["spec"];
        let fields = match decide(spec, &self.identity, now.duration_since(since)) {
            Move::Wait => return Ok(false),
            Move::Renew => json!({"renewTime": micros()}),
            Move::Take => json!({
                "holderIdentity": self.identity, "leaseDurationSeconds": DURATION.as_secs(),
                "acquireTime": micros(), "renewTime": micros(),
                "leaseTransitions": spec["leaseTransitions"].as_u64().unwrap_or(0) + 1,
            }),
        };
        lost_or(patch(&self.api, &lease, fields).await)
    }
}

/// Whether it became ours; another one having been faster is no error.
fn lost_or(done: Result<(), kube::Error>) -> Result<bool, kube::Error> {
    match done {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

async fn patch(api: &Api<DynamicObject>, lease: &DynamicObject, spec: Value) -> Result<(), kube::Error> {
    let patch = json!({"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec});
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

/// What follows from a Lease that was not changed for so long. The times in it are not compared with our clock: clocks
/// of nodes differ.
fn decide(spec: &Value, identity: &str, unchanged: Duration) -> Move {
    let duration = spec["leaseDurationSeconds"].as_u64().map_or(DURATION, Duration::from_secs);
    match spec["holderIdentity"].as_str() {
        Some(holder) if holder == identity => Move::Renew,
        None | Some("") => Move::Take,
        Some(_) if unchanged > duration => Move::Take,
        Some(_) => Move::Wait,
    }
}

fn micros() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_holder_is_replaced_after_the_duration_it_asked_for() {
        let lease = json!({"holderIdentity": "a", "leaseDurationSeconds": 6});
        for (identity, unchanged, wanted) in
            [("a", 100, Move::Renew), ("b", 0, Move::Wait), ("b", 6, Move::Wait), ("b", 7, Move::Take)]
        {
            let found = decide(&lease, identity, Duration::from_secs(unchanged));
            assert_eq!(found, wanted, "{identity} after {unchanged} s");
        }
        assert_eq!(decide(&json!({"holderIdentity": ""}), "b", Duration::ZERO), Move::Take);
        assert_eq!(decide(&Value::Null, "b", Duration::ZERO), Move::Take);
    }

    /// The holder must have stopped before anybody else begins.
    #[test]
    fn a_holder_stops_before_its_lease_can_be_taken() {
        const { assert!(DEADLINE.as_millis() + RENEW.as_millis() < DURATION.as_millis()) };
    }
}
