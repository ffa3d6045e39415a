//! A container's task as it is: containerd's word, the kernel's, and the witness's.

use super::Containerd;
use super::error::CallError;
use super::link::STATE;
use super::look::timestamp;
use super::process;
use crate::model::{Exit, ExitStatus, InstanceKey, TaskSeen, Timestamp};
use containerd_client::services::v1::GetRequest;
use containerd_client::types::v1::{Process, Status};
use std::time::Duration;

/// containerd hears of an exit a few ms after the kernel knows, and the witness of its status; a look in between
/// asks again this often.
const ASK_AGAIN: u32 = 5;
const ASK_AFTER: Duration = Duration::from_millis(20);

impl Containerd {
    /// A container's task; an error only when containerd itself cannot be reached.
    pub(super) async fn see_task(&self, key: &InstanceKey, id: &str) -> Result<TaskSeen, CallError> {
        for _ in 0..ASK_AGAIN {
            let judged = match self.get_task(id).await {
                Ok(Some(process)) => self.judge(key, id, &process),
                // Gone for containerd, and not for the kernel: a shim has died, and its clean-up is under way.
                Ok(None) => self.witness().open_of(id).is_none().then_some(TaskSeen::None),
                Err(error @ CallError::Transport { .. }) => return Err(error),
                Err(error) => Some(TaskSeen::Unknown { why: error.chain() }),
            };
            if let Some(task) = judged {
                return Ok(task);
            }
            tokio::time::sleep(ASK_AFTER).await;
        }
        let why = match self.witness().open_of(id) {
            Some((pid, true)) => format!("process {pid} has ended, its status is being established"),
            Some((pid, false)) => format!("process {pid} runs, and containerd has no task for it"),
            None => "its process has ended, and containerd does not know yet".to_owned(),
        };
        Ok(TaskSeen::Unknown { why })
    }

    /// What containerd says of a task; `None` for NotFound.
    ///
    /// Where its Start was cut off (by the death of containerd, or of who asked for it), containerd goes on calling
    /// `created` what has long begun, and another Start hangs. The kernel knows better.
    pub(super) async fn get_task(&self, id: &str) -> Result<Option<Process>, CallError> {
        let request = self.link().request(GetRequest { container_id: id.to_owned(), exec_id: String::new() });
        match self.link().read("Tasks.Get", STATE, self.link().tasks().get(request)).await {
            Ok(answer) => Ok(answer.process.map(|mut process| {
                if process.status() == Status::Created && process::has_begun(process.pid) {
                    process.set_status(Status::Running);
                }
                process
            })),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `None` when it has to be asked again: containerd calls a process alive that the kernel does not know, or the
    /// witness is about to know more.
    fn judge(&self, key: &InstanceKey, id: &str, process: &Process) -> Option<TaskSeen> {
        let pid = process.pid;
        match process.status() {
            Status::Created => {
                let start_ticks = process::start_ticks(pid)?;
                self.watch(key, id, pid, start_ticks);
                Some(TaskSeen::Created { pid })
            }
            Status::Running => {
                let start_ticks = process::start_ticks(pid)?;
                self.watch(key, id, pid, start_ticks);
                Some(TaskSeen::Running { pid, start_ticks })
            }
            Status::Stopped if self.witness().is_pending(id, pid) => None,
            Status::Stopped => Some(TaskSeen::Stopped(self.first_exit(id, process))),
            other => Some(TaskSeen::Unknown { why: format!("containerd says {}", other.as_str_name()) }),
        }
    }

    fn watch(&self, key: &InstanceKey, id: &str, pid: u32, start_ticks: u64) {
        if let Err(error) = self.witness().arm(key, id, pid, Some(start_ticks)) {
            tracing::debug!(container = id, pid, %error, "its exit will not be witnessed");
        }
    }

    /// The first account of an exit: the witness's, where it knows the status, before containerd's, which may be made
    /// up by the removal of a dead shim.
    fn first_exit(&self, id: &str, process: &Process) -> Exit {
        let witnessed = self.witness().journal().exit(id, process.pid).unwrap_or_default();
        if let Some(exit) = witnessed.filter(|exit| exit.status != ExitStatus::Unknown) {
            return exit;
        }
        let at = process.exited_at.as_ref().and_then(timestamp);
        // Without a time it is no exit that was seen: the status beside it is a default.
        let status = at.map_or(ExitStatus::Unknown, |_| ExitStatus::Code(process.exit_status));
        Exit { pid: process.pid, status, at: at.unwrap_or(Timestamp(0)) }
    }
}
