//! A node in a network and mount namespace of its own, for the tests of the network driver.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(dead_code, reason = "each test file uses its part")]

pub mod talk;

use ipnet::Ipv4Net;
use std::collections::BTreeSet;
use std::future::Future;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use stead::drive::Counters;
use stead::drive::net::{Net, Options, Owners};
use stead::model::{InstanceKey, LinkIdentity, LinkSeen, Marks, NetSide, NetnsIdentity, NetworkKey, Outcome, Step};

/// Runs a test on a thread with a fresh network namespace and a private `/run`.
pub fn isolated<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    let body = move || {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        mount(Some("run"), "/run", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        run("ip link set lo up");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    };
    let ended = std::thread::Builder::new().name("isolated".into()).spawn(body).unwrap().join();
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

#[expect(clippy::disallowed_methods, reason = "a test plays the administrator")]
pub fn command(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    command
}

pub fn run(line: &str) -> String {
    let output = command(line).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a piece of work on a thread inside a netns.
pub fn within<T: Send>(netns: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = std::fs::File::open(format!("/run/netns/{netns}")).unwrap();
    let body = || {
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(body).join()).unwrap()
}

/// A process that is killed with the value.
pub struct Guest(pub Child);

impl Guest {
    pub fn in_netns(netns: &str, line: &str) -> Self {
        Self(
            command(&format!("exec ip netns exec {netns} setpriv --pdeathsig KILL {line}"))
                .stdin(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Node {
    pub net: Net,
    pub marks: Marks,
    pub counters: Arc<Counters>,
    /// Whether bridges and instances have IPv6 beside IPv4: at the same place in fd00:9::/64.
    pub six: bool,
}

pub fn instance(text: &str) -> InstanceKey {
    text.parse().unwrap()
}

pub fn network(app: &str, name: &str) -> NetworkKey {
    NetworkKey { app: app.parse().unwrap(), network: name.parse().unwrap() }
}

pub fn address(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

pub fn identity(link: &LinkSeen) -> LinkIdentity {
    LinkIdentity { index: link.index, name: link.name.clone(), alias: link.alias.clone() }
}

impl Node {
    pub fn new() -> Self {
        Self::named("stead")
    }

    pub fn named(agent: &str) -> Self {
        let marks = Marks::new(agent.parse().unwrap());
        let counters = Arc::<Counters>::default();
        let netns_dir = PathBuf::from("/run/netns");
        let net = Net::new(Options { marks: marks.clone(), netns_dir, counters: counters.clone() });
        Self { net, marks, counters, six: false }
    }

    /// Tells the driver whose names are whose.
    pub fn own(&self, instances: &[&InstanceKey], network: &NetworkKey) {
        let networks = BTreeSet::from([network.clone()]);
        let instances = instances.iter().map(|key| ((*key).clone(), networks.clone()));
        self.net.set_owners(Arc::new(Owners::new(&self.marks, instances, [network.clone()])));
    }

    pub async fn done(&self, step: Step) {
        let outcome = self.net.perform(step.clone()).await;
        assert_eq!(outcome, Outcome::Done, "{step:?}");
    }

    pub async fn bridge(&self, key: &NetworkKey) -> LinkSeen {
        self.net.look_network(key).await.seen().cloned().flatten().expect("the bridge is there")
    }

    pub async fn side(&self, key: &InstanceKey) -> NetSide {
        self.net.look_instance(key).await.seen().cloned().flatten().expect("something of the instance is there")
    }

    fn six_of(&self, at: &str) -> Option<ipnet::Ipv6Net> {
        let last = address(at).addr().octets()[3];
        self.six.then(|| format!("fd00:9::{last}/64").parse().unwrap())
    }

    pub async fn make_bridge(&self, key: &NetworkKey, at: &str) -> LinkSeen {
        let mac = self.marks.mac(&key.to_string());
        self.done(Step::MakeBridge { name: self.marks.bridge(key), mac, network: key.clone() }).await;
        let alias = self.marks.bridge_alias(key);
        self.done(Step::SetAlias { link: identity(&self.bridge_by_name(key).await), alias }).await;
        let link = self.bridge(key).await;
        self.done(Step::SetBridgeAddress { link: identity(&link), address: address(at), six: self.six_of(at) }).await;
        self.done(Step::SetRouteLocalnet { link: identity(&link) }).await;
        self.bridge(key).await
    }

    /// A bridge that may have no alias yet.
    pub async fn bridge_by_name(&self, key: &NetworkKey) -> LinkSeen {
        self.own(&[], key);
        self.bridge(key).await
    }

    pub async fn make_netns(&self, key: &InstanceKey) -> NetnsIdentity {
        let name = self.marks.netns(key);
        self.done(Step::MakeNetns { name: name.clone() }).await;
        NetnsIdentity { inode: self.side(key).await.netns.unwrap().inode, name }
    }

    pub fn link_step(&self, key: &InstanceKey, network: &NetworkKey, netns: &NetnsIdentity, bridge: &LinkSeen) -> Step {
        Step::MakeLink {
            name: self.marks.link(key, network),
            netns: netns.name.clone(),
            inode: netns.inode,
            interface: "eth0".into(),
            mac: self.marks.mac(&key.to_string()),
            mtu: 1500,
            bridge: (bridge.name.clone(), bridge.index),
        }
    }

    /// Everything that an instance needs, as the planner asks for it.
    pub async fn make_instance(&self, key: &InstanceKey, network: &NetworkKey, at: &str) -> NetnsIdentity {
        self.make_netns(key).await;
        self.fit_out(key, network, at).await
    }

    /// Everything that an instance needs in its netns.
    pub async fn fit_out(&self, key: &InstanceKey, network: &NetworkKey, at: &str) -> NetnsIdentity {
        let bridge = self.bridge(network).await;
        let inode = self.side(key).await.netns.expect("the netns is there").inode;
        let netns = NetnsIdentity { inode, name: self.marks.netns(key) };
        self.done(Step::LoopbackUp { netns: netns.clone() }).await;
        self.own(&[key], network);
        self.done(self.link_step(key, network, &netns, &bridge)).await;
        let link = self.side(key).await.links[network].clone();
        self.done(Step::SetAlias { link: identity(&link), alias: self.marks.link_alias(key, network) }).await;
        let link = self.side(key).await.links[network].clone();
        self.done(Step::AttachPort { link: identity(&link), bridge: bridge.index }).await;
        let step = Step::SetAddress {
            netns: netns.clone(),
            interface: "eth0".into(),
            address: address(at),
            six: self.six_of(at),
        };
        self.done(step).await;
        let four = bridge.addresses.iter().map(|address| address.addr().into());
        for gateway in four.chain(bridge.addresses6.iter().map(|address| address.addr().into())) {
            self.done(Step::SetDefaultRoute { netns: netns.clone(), gateway }).await;
        }
        netns
    }
}
