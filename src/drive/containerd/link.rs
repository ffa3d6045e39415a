//! The connection: a lazy channel, one deadline for each call, and the one place where errors are classified.
//!
//! No HTTP/2 keepalive (containerd answers it with GOAWAY, which looks like its death) and no channel-wide timeout
//! (it would cut streams that wait for their first event).

use super::error::CallError;
use crate::drive::Counters;
use crate::model::AgentName;
use containerd_client::services::v1::{
    containers_client::ContainersClient, content_client::ContentClient, diff_client::DiffClient,
    events_client::EventsClient, images_client::ImagesClient, leases_client::LeasesClient,
    snapshots::snapshots_client::SnapshotsClient, tasks_client::TasksClient, version_client::VersionClient,
};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

/// A call that reads one thing: containerd answers these from memory or one database page.
pub const READ: Duration = Duration::from_secs(5);
/// A call that changes records: a database commit with fsync, on a slow disk.
pub const WRITE: Duration = Duration::from_secs(10);
/// A call that waits for a shim and runc: 1.6 s was seen with 50 at once, so this is far above.
pub const SHIM: Duration = Duration::from_secs(30);
/// A task's state. containerd gives up on a hung shim after 2 s by itself; this covers a hung containerd.
pub const STATE: Duration = Duration::from_secs(3);

/// Lists are read with room for some thousand objects (1500 container records are 3 MB).
const MESSAGE_LIMIT: usize = 32 << 20;

/// The way to one containerd and one namespace in it. Cloning shares the connection.
#[derive(Debug, Clone)]
pub struct Link {
    channel: Channel,
    namespace: MetadataValue<Ascii>,
    counters: Arc<Counters>,
    socket: PathBuf,
}

impl Link {
    /// Prepares the way; the connection is made by the first call, and again by the first call after it broke.
    pub fn new(socket: &Path, agent: &AgentName, counters: Arc<Counters>) -> Self {
        let path = socket.to_path_buf();
        let connect = move |_| {
            let path = path.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        };
        let channel = Endpoint::from_static("http://[::]").connect_with_connector_lazy(tower::service_fn(connect));
        let namespace = agent.as_str().parse().expect("an agent's name is ASCII without control characters");
        Self { channel, namespace, counters, socket: socket.to_path_buf() }
    }

    /// The socket, for messages.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A request in our namespace.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("containerd-namespace", self.namespace.clone());
        request
    }

    /// A request in our namespace whose new objects belong to a lease.
    pub fn leased<T>(&self, message: T, lease: &str) -> Request<T> {
        let mut request = self.request(message);
        let lease = lease.parse().expect("a lease's id is an agent's name and hexadecimal digits");
        request.metadata_mut().insert("containerd-lease", lease);
        request
    }

    /// A call that changes nothing.
    pub async fn read<T>(
        &self,
        what: &'static str,
        within: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CallError> {
        self.counters.containerd_reads.fetch_add(1, Ordering::Relaxed);
        bounded(what, within, call).await
    }

    /// A call that changes something: counted, and told to the log.
    pub async fn write<T>(
        &self,
        what: &'static str,
        id: &str,
        within: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CallError> {
        self.count_write(what, id);
        bounded(what, within, call).await
    }

    /// Counts a change that is made by a stream of messages.
    pub fn count_write(&self, what: &'static str, id: &str) {
        self.counters.containerd_writes.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(call = what, id, "containerd write");
    }

    /// Container records.
    pub fn containers(&self) -> ContainersClient<Channel> {
        ContainersClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Tasks.
    pub fn tasks(&self) -> TasksClient<Channel> {
        TasksClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Snapshots.
    pub fn snapshots(&self) -> SnapshotsClient<Channel> {
        SnapshotsClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Image records.
    pub fn images(&self) -> ImagesClient<Channel> {
        ImagesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Blobs.
    pub fn content(&self) -> ContentClient<Channel> {
        ContentClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Leases.
    pub fn leases(&self) -> LeasesClient<Channel> {
        LeasesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Layer unpacking.
    pub fn diff(&self) -> DiffClient<Channel> {
        DiffClient::new(self.channel.clone())
    }

    /// Events.
    pub fn events(&self) -> EventsClient<Channel> {
        EventsClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// The probe.
    pub fn version(&self) -> VersionClient<Channel> {
        VersionClient::new(self.channel.clone())
    }
}

async fn bounded<T>(
    what: &'static str,
    within: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(within, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(CallError::from_status(what, status)),
        Err(_) => Err(CallError::Deadline { what, within }),
    }
}
