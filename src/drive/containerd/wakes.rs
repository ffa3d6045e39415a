//! Wake-ups from containerd: subscribe, prove it with a marker, say "look at everything", then one wake for each event.
//!
//! An event carries no fact here, only whom to look at. A broken stream says that the domain is blind; so does a
//! containerd that takes connections and does not answer.

use super::error::CallError;
use super::link::READ;
use super::turns::TURN_EVERY;
use super::{Containerd, process};
use crate::drive::Wake;
use crate::model::{Domain, Key};
use containerd_client::events::{
    ContainerCreate, ContainerDelete, ContainerUpdate, SnapshotCommit, SnapshotPrepare, SnapshotRemove, TaskCreate,
    TaskDelete, TaskExit, TaskOom, TaskPaused, TaskResumed, TaskStart,
};
use containerd_client::services::v1::{PublishRequest, SubscribeRequest};
use containerd_client::types::Envelope;
use futures::channel::mpsc;
use futures::stream::{self, Stream, StreamExt};
use futures::{SinkExt, future};
use prost::Message;
use prost_types::Any;
use std::time::Duration;
use tokio::time::sleep;
use tonic::Streaming;

/// Wakes on their way to the loop. When it lags, containerd queues them.
const QUEUE: usize = 64;
/// Between two tries to reach containerd: doubling from the first to the last. At the last, ten minutes cost 1200
/// connects of less than a ms each.
const RETRY: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(500));
/// Between two markers. The stream has usually begun before the second.
const MARK_EVERY: Duration = Duration::from_millis(50);
/// A stream that brings no marker for so long is given up.
const MARK_WITHIN: Duration = Duration::from_secs(10);
/// How often a quiet containerd is asked whether it lives.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// At most one log line a minute while it is away.
const TELL_EVERY: Duration = Duration::from_secs(60);

const MARKER: &str = "/stead/marker";

impl Containerd {
    /// What happens in containerd from now on, and what the witnesses see.
    pub fn wakes(&self) -> impl Stream<Item = Wake> + use<> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let pump = stream::once(follow(self.clone(), sender)).filter_map(|()| future::ready(None));
        let witness = self.witness().clone();
        if let Err(error) = witness.journal().prepare() {
            tracing::warn!(%error, "the folder of exits cannot be made; it is tried again at the first exit");
        }
        let exits =
            stream::unfold(witness, |witness| async move { Some((witness.exits().await, witness)) }).flat_map(|keys| {
                stream::iter(keys.into_iter().map(|key| Wake::object(Key::Instance(key), "exit witnessed")))
            });
        stream::select(stream::select(receiver, pump), exits)
    }
}

type Sender = mpsc::Sender<Wake>;

/// Follows containerd until nobody listens any more.
async fn follow(containerd: Containerd, mut wakes: Sender) {
    let mut told = false;
    loop {
        reach(&containerd, &mut wakes, &mut told).await;
        let error = match subscribe(&containerd).await {
            Ok(stream) => {
                tracing::info!(socket = %containerd.link().socket().display(), "following containerd");
                told = false;
                if wakes.send(Wake::domain(Domain::Runtime, "resync")).await.is_err() {
                    return;
                }
                match events(&containerd, stream, &mut wakes).await {
                    Some(error) => error,
                    None => return,
                }
            }
            Err(error) => error,
        };
        if lose(&mut wakes, &error, &mut told).await.is_none() {
            return;
        }
        // However the stream ended: a containerd that cuts each one at once is not asked in a tight loop.
        sleep(RETRY.0).await;
    }
}

/// Tells the loop that the domain is blind, and the log once for each outage.
async fn lose(wakes: &mut Sender, error: &CallError, told: &mut bool) -> Option<()> {
    if !std::mem::replace(told, true) {
        tracing::warn!(error = error.chain(), "containerd is lost; workloads run on, their steps wait");
    }
    wakes.send(Wake::lost(Domain::Runtime, error.chain())).await.ok()
}

/// Waits until containerd answers.
async fn reach(containerd: &Containerd, wakes: &mut Sender, told: &mut bool) {
    let mut delay = RETRY.0;
    let mut silent = Duration::ZERO;
    while let Err(error) = probe(containerd).await {
        if !*told && lose(wakes, &error, told).await.is_none() {
            return;
        }
        if silent >= TELL_EVERY {
            silent = Duration::ZERO;
            tracing::info!(error = error.chain(), "containerd is still away");
        }
        sleep(delay).await;
        silent += delay;
        delay = (delay * 2).min(RETRY.1);
    }
}

async fn probe(containerd: &Containerd) -> Result<(), CallError> {
    containerd.version().await.map(drop)
}

/// Subscribes, and returns once a marker of ours has come back: from then on nothing is missed.
async fn subscribe(containerd: &Containerd) -> Result<Streaming<Envelope>, CallError> {
    let link = containerd.link();
    let filter = format!("namespace==\"{}\"", containerd.marks().agent());
    let mut client = link.events();
    let mark = format!("{}-{}", std::process::id(), process::wall_time().0);
    // The server sends nothing, not even headers, before the first event: the markers are what opens the stream.
    let open = async {
        let request = link.request(SubscribeRequest { filters: vec![filter] });
        let answer = client.subscribe(request).await;
        let mut stream = answer.map_err(|status| CallError::from_status("Events.Subscribe", status))?.into_inner();
        loop {
            let envelope = next(&mut stream).await?;
            if envelope.topic == MARKER && envelope.event.is_some_and(|event| event.value == mark.as_bytes()) {
                return Ok(stream);
            }
        }
    };
    let publish = async {
        loop {
            let event = Some(Any { type_url: "stead.marker".to_owned(), value: mark.clone().into_bytes() });
            let request = link.request(PublishRequest { topic: MARKER.to_owned(), event });
            if let Err(error) = link.read("Events.Publish", READ, link.events().publish(request)).await {
                return error;
            }
            sleep(MARK_EVERY).await;
        }
    };
    let race = async {
        tokio::select! {
            opened = open => opened,
            error = publish => Err(error),
        }
    };
    let late = CallError::Deadline { what: "Events.Subscribe", within: MARK_WITHIN };
    tokio::time::timeout(MARK_WITHIN, race).await.unwrap_or(Err(late))
}

async fn next(stream: &mut Streaming<Envelope>) -> Result<Envelope, CallError> {
    let what = "Events.Subscribe";
    match stream.message().await {
        Ok(Some(envelope)) => Ok(envelope),
        Ok(None) => Err(CallError::Transport { what, sent: false, source: "the stream has ended".into() }),
        Err(status) => Err(CallError::from_status(what, status)),
    }
}

/// Passes events on, and asks shims in turns, until the stream breaks or containerd goes mute; `None` when nobody listens
/// any more.
async fn events(containerd: &Containerd, mut stream: Streaming<Envelope>, wakes: &mut Sender) -> Option<CallError> {
    let alive = async {
        loop {
            sleep(PROBE_EVERY).await;
            if let Err(error) = probe(containerd).await {
                return error;
            }
        }
    };
    let mut rings = wakes.clone();
    let turns = async {
        let mut last = None;
        loop {
            sleep(TURN_EVERY).await;
            for wake in containerd.ask_shims(&mut last).await {
                if rings.send(wake).await.is_err() {
                    return;
                }
            }
        }
    };
    let pass = async {
        loop {
            let envelope = match next(&mut stream).await {
                Ok(envelope) => envelope,
                Err(error) => return Some(error),
            };
            if let Some(wake) = wake(containerd, &envelope) {
                wakes.send(wake).await.ok()?;
            }
        }
    };
    tokio::select! {
        error = alive => Some(error),
        error = pass => error,
        () = turns => None,
    }
}

/// Whom an event wakes.
fn wake(containerd: &Containerd, envelope: &Envelope) -> Option<Wake> {
    let (because, subject) = subject(&envelope.topic, &envelope.event.as_ref()?.value)?;
    let id = match subject {
        Subject::Image(name) => return Some(Wake::object(Key::Image(name), because)),
        Subject::Owned(id) => id,
    };
    if containerd.echoes().is_ours(&envelope.topic, &id) {
        return None;
    }
    match containerd.known().owner(&id) {
        Some(key) => Some(Wake::object(Key::Instance(key), because)),
        // Layers of images come and go under keys of their own.
        None if envelope.topic.starts_with("/snapshot/") => None,
        None => Some(Wake::domain(Domain::Runtime, because)),
    }
}

/// Image events, of which the client crate has no types: the name is the first field of all three.
#[derive(Clone, PartialEq, prost::Message)]
struct ImageEvent {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Subject {
    Image(String),
    /// A container id or a snapshot key.
    Owned(String),
}

/// What an event is about; `None` for those that change nothing we look at (execs among them).
fn subject(topic: &str, value: &[u8]) -> Option<(&'static str, Subject)> {
    macro_rules! about {
        ($because:literal, $message:ty, $field:ident, $subject:ident) => {
            Some(($because, Subject::$subject(<$message>::decode(value).ok()?.$field)))
        };
    }
    match topic {
        "/tasks/exit" => {
            let exit = TaskExit::decode(value).ok()?;
            // A process that was executed inside has an id of its own.
            (exit.id == exit.container_id).then_some(("task exited", Subject::Owned(exit.container_id)))
        }
        "/tasks/create" => about!("task created", TaskCreate, container_id, Owned),
        "/tasks/start" => about!("task started", TaskStart, container_id, Owned),
        "/tasks/delete" => about!("task deleted", TaskDelete, container_id, Owned),
        "/tasks/oom" => about!("out of memory", TaskOom, container_id, Owned),
        "/tasks/paused" => about!("task paused", TaskPaused, container_id, Owned),
        "/tasks/resumed" => about!("task resumed", TaskResumed, container_id, Owned),
        "/containers/create" => about!("container created", ContainerCreate, id, Owned),
        "/containers/update" => about!("container updated", ContainerUpdate, id, Owned),
        "/containers/delete" => about!("container deleted", ContainerDelete, id, Owned),
        "/snapshot/prepare" => about!("snapshot prepared", SnapshotPrepare, key, Owned),
        "/snapshot/commit" => about!("snapshot committed", SnapshotCommit, key, Owned),
        "/snapshot/remove" => about!("snapshot removed", SnapshotRemove, key, Owned),
        "/images/create" => about!("image created", ImageEvent, name, Image),
        "/images/update" => about!("image updated", ImageEvent, name, Image),
        "/images/delete" => about!("image deleted", ImageEvent, name, Image),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_of_an_exec_wakes_nobody() {
        let exit = TaskExit { container_id: "c".to_owned(), id: "c".to_owned(), pid: 7, ..TaskExit::default() };
        let found = subject("/tasks/exit", &exit.encode_to_vec());
        assert_eq!(found, Some(("task exited", Subject::Owned("c".to_owned()))));
        let exec = TaskExit { id: "shell".to_owned(), ..exit };
        assert_eq!(subject("/tasks/exit", &exec.encode_to_vec()), None);
        assert_eq!(subject("/namespaces/update", &[]), None);
        assert_eq!(subject("/tasks/exit", &[0xff]), None, "not readable");
    }
}
