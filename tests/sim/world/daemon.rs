//! containerd and its shims: what a crash, a restart and a hang do to tasks.

use super::{Daemon, Shim, Version, World};
use stead::model::Step;

impl World {
    /// containerd is killed. What is cut off in the middle of a create stays half-made where this version leaves it so.
    pub fn daemon_dies(&mut self) {
        self.runtime.daemon = Daemon::Down;
        self.ring_runtime_lost("stream closed because of a broken pipe");
    }

    /// A create of a task is cut off by containerd's death.
    pub fn cut_create(&mut self, step: &Step) {
        let Step::CreateTask { container } = step else {
            return;
        };
        if self.runtime.version != Version::V1_6 {
            return;
        }
        let found = self.runtime.containers.get_mut(&container.id);
        if let Some(found) = found.filter(|found| found.created_at == container.created_at && found.task.is_none()) {
            found.wedge = true;
            let instance = found.instance.clone();
            instance.iter().for_each(|instance| self.audit.shake(instance));
        }
    }

    /// containerd starts: it keeps running and made tasks, forgets stopped ones (but for 1.6), kills what lost its shim.
    pub fn daemon_starts(&mut self) {
        self.runtime.daemon = Daemon::Up;
        let ids: Vec<String> = self.runtime.containers.keys().cloned().collect();
        for id in ids {
            let Some(task) = self.container(&id).task.clone() else {
                continue;
            };
            let forgets = task.exit.is_some() && self.runtime.version != Version::V1_6;
            let shim_lost = task.shim != Shim::Up;
            if shim_lost || forgets {
                if let Some(instance) = self.container(&id).instance.clone() {
                    self.audit.shake(&instance);
                }
                self.remove_task(&id);
            }
        }
        self.ring_runtime("reconnected");
    }

    /// A shim is killed. containerd, when it is up, ends the init and forgets the task.
    pub fn shim_dies(&mut self, id: &str) {
        let Some(container) = self.runtime.containers.get_mut(id) else {
            return;
        };
        let instance = container.instance.clone();
        let Some(task) = container.task.as_mut() else {
            return;
        };
        task.shim = Shim::Dead;
        if self.runtime.daemon != Daemon::Down {
            self.remove_task(id);
        }
        if let Some(instance) = instance {
            self.audit.shake(&instance);
            self.ring_instance(&instance, "task exit");
        }
    }

    /// A shim hangs, or goes on.
    pub fn shim_hangs(&mut self, id: &str, hung: bool) {
        let Some(container) = self.runtime.containers.get_mut(id) else {
            return;
        };
        if let Some(task) = container.task.as_mut().filter(|task| task.shim != Shim::Dead) {
            task.shim = if hung { Shim::Hung } else { Shim::Up };
        }
    }
}
