//! Published ports: the short form in all its variants, and the long form.

use super::Normal;
use crate::desired::node::{At, Node, Value};
use crate::desired::table::PORT;
use std::net::IpAddr;

/// The most ports that one range may hold: all of them.
const RANGE_MAX: u32 = 65_535;

/// A port or a range of them, both ends included.
#[derive(Clone, Copy)]
struct Range {
    first: u16,
    last: u16,
}

impl Range {
    fn len(self) -> u32 {
        u32::from(self.last - self.first) + 1
    }
}

impl Normal<'_> {
    /// The ports of a service, one entry a port.
    pub(super) fn ports(&mut self, node: Node) -> Option<Node> {
        let (at, items) = self.items("ports", "a list", node)?;
        let mut out = Vec::new();
        for item in items {
            match &item.value {
                Value::Map(_) => out.extend(self.long_port(item)),
                Value::Text(text) => {
                    let text = text.clone();
                    out.extend(self.short_port(&text, item.at).unwrap_or_default());
                }
                Value::Int(number) => {
                    let text = number.to_string();
                    out.extend(self.short_port(&text, item.at).unwrap_or_default());
                }
                _ => self.mismatch("an item of ports", "a port or a mapping", &item),
            }
        }
        Some(Node::new(at, Value::Seq(out)))
    }

    fn long_port(&mut self, item: Node) -> Option<Node> {
        let at = item.at;
        let mut node = self.table("port", &PORT, item)?;
        let map = node.as_map_mut()?;
        if let Some(entry) = map.get_mut("published") {
            match entry.node.scalar_text() {
                Some(text) => entry.node.value = Value::Text(text),
                None => {
                    map.remove("published");
                }
            }
        }
        for (key, default) in [("mode", "ingress"), ("protocol", "tcp")] {
            if !map.contains_key(key) {
                let entry = crate::desired::node::Entry { at, node: Node::text(at, default) };
                map.insert(key.to_owned(), entry);
            }
        }
        if let Some(target) = node.get("target").and_then(Node::as_int)
            && !(1..=65_535).contains(&target)
        {
            let place = node.get("target").map_or(at, |node| node.at);
            self.findings.error(place, format!("{target} is not a port: ports are 1 to 65535"));
        }
        Some(node)
    }

    /// `[[IP:]HOST:]CONTAINER[/PROTOCOL]`, where both may be ranges.
    fn short_port(&mut self, text: &str, at: At) -> Option<Vec<Node>> {
        let (rest, protocol) = match text.split_once('/') {
            Some((rest, protocol)) => (rest, protocol.to_ascii_lowercase()),
            None => (text, "tcp".to_owned()),
        };
        if !["tcp", "udp", "sctp"].contains(&protocol.as_str()) {
            let message = format!("\"{protocol}\" is not a protocol that a port can be published for");
            self.findings.error(at, message).hint("use tcp or udp");
            return None;
        }
        let (rest, target) = match rest.rsplit_once(':') {
            Some((rest, target)) => (Some(rest), target),
            None => (None, rest),
        };
        let target = self.range(target, "container port", at)?;
        let (ip, host) = match rest {
            None => (None, None),
            Some(rest) => match rest.rsplit_once(':') {
                Some((ip, host)) => (Some(ip), Some(host)),
                None => (None, Some(rest)),
            },
        };
        let ip = match ip {
            Some(ip) => Some(self.address(ip, at)?),
            None => None,
        };
        let host = match host {
            None => None,
            Some("") if ip.is_some() => None,
            Some(host) => Some((host, self.range(host, "host port", at)?)),
        };
        self.pair(at, ip.as_deref(), host, target, &protocol)
    }

    fn pair(
        &mut self,
        at: At,
        ip: Option<&str>,
        host: Option<(&str, Range)>,
        target: Range,
        protocol: &str,
    ) -> Option<Vec<Node>> {
        let entry = |published: Option<String>, target: u16| {
            let mut fields = vec![("mode", Node::text(at, "ingress"))];
            if let Some(ip) = ip {
                fields.push(("host_ip", Node::text(at, ip)));
            }
            fields.push(("target", Node::new(at, Value::Int(i64::from(target)))));
            if let Some(published) = published {
                fields.push(("published", Node::text(at, published)));
            }
            fields.push(("protocol", Node::text(at, protocol)));
            Node::map(at, fields)
        };
        let targets = target.first..=target.last;
        match host {
            None => Some(targets.map(|port| entry(None, port)).collect()),
            Some((_, range)) if range.len() == target.len() => Some(
                targets.zip(range.first..=range.last).map(|(to, from)| entry(Some(from.to_string()), to)).collect(),
            ),
            Some((text, _)) if target.len() == 1 => Some(vec![entry(Some(text.to_owned()), target.first)]),
            Some((_, range)) => {
                let message = format!(
                    "a range of {} host ports cannot map onto a range of {} container ports",
                    range.len(),
                    target.len()
                );
                self.findings.error(at, message).hint("make both ranges equally long");
                None
            }
        }
    }

    fn address(&mut self, text: &str, at: At) -> Option<String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if bare.parse::<IpAddr>().is_ok() {
            return Some(bare.to_owned());
        }
        self.findings.error(at, format!("\"{text}\" is not an IP address"));
        None
    }

    fn range(&mut self, text: &str, what: &str, at: At) -> Option<Range> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let first = self.port(first, what, at)?;
        let last = self.port(last, what, at)?;
        if first > last || u32::from(last - first) >= RANGE_MAX {
            self.findings.error(at, format!("the range \"{text}\" runs backwards"));
            return None;
        }
        Some(Range { first, last })
    }

    fn port(&mut self, text: &str, what: &str, at: At) -> Option<u16> {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            let message = format!("\"{text}\" is not a port number");
            self.findings.error(at, message).hint("a port is HOST:CONTAINER, IP:HOST:CONTAINER or CONTAINER alone");
            return None;
        }
        match text.parse::<u16>() {
            Ok(port) => Some(port),
            Err(_) => {
                self.findings.error(at, format!("{what} {text} is above 65535"));
                None
            }
        }
    }
}
