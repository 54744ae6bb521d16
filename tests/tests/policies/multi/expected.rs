//! Lines that say which pod reaches which, read in order.

use std::fmt;

/// Protocols that are asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// A connection to a port, with a word each way.
    Tcp,
    /// A datagram to a port, with an answer.
    Udp,
    /// An echo request, with its reply.
    Icmp,
}

/// A question of one pod to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Question {
    /// Letter of the asking pod's port.
    pub(super) from: char,
    /// Letter of the asked pod's port.
    pub(super) to: char,
    /// Over IPv4, else IPv6.
    pub(super) is_v4: bool,
    /// Its protocol.
    pub(super) protocol: Protocol,
    /// The port asked; 0 of ICMP.
    pub(super) number: u16,
}

impl Question {
    /// Index of its family: IPv4, IPv6.
    pub(super) fn family(self) -> usize {
        usize::from(!self.is_v4)
    }
}

impl fmt::Display for Question {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.is_v4 { "v4" } else { "v6" };
        write!(out, "{}>{} {family} ", self.from, self.to)?;
        match self.protocol {
            Protocol::Tcp => write!(out, "tcp {}", self.number),
            Protocol::Udp => write!(out, "udp {}", self.number),
            Protocol::Icmp => write!(out, "icmp"),
        }
    }
}

/// Answers that a table of lines expects.
///
/// All is open before the first line. `- *>s` closes what anybody asks `s`, and `+ ac>s udp 80 81` opens
/// these ports to `a` and `c`. The last line about a question counts. Words after the pods, `tcp udp icmp v4 v6` and
/// numbers, are conditions: one of each kind that is there.
#[derive(Debug)]
pub(super) struct Expected {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    is_open: bool,
    from: String,
    to: String,
    protocols: Vec<Protocol>,
    families: Vec<bool>,
    numbers: Vec<u16>,
}

impl Expected {
    /// Reads lines.
    ///
    /// # Panics
    /// At one that is none.
    pub(super) fn read(lines: &[&str]) -> Self {
        let lines = lines.iter().map(|line| Line::read(line));
        Self {
            lines: lines.collect(),
        }
    }

    /// Reports whether the question is to be heard and answered.
    pub(super) fn is_open(&self, question: Question) -> bool {
        let mut lines = self.lines.iter().rev();
        lines
            .find(|line| line.is_about(question))
            .is_none_or(|line| line.is_open)
    }
}

impl Line {
    fn read(text: &str) -> Self {
        let mut words = text.split(' ');
        let (sign, pods) = (words.next(), words.next());
        let ends = pods.and_then(|pods| pods.split_once('>'));
        let (from, to) = ends.expect("pods as `a>b`");
        assert!(matches!(sign, Some("+" | "-")), "no line: {text:?}");
        let mut line = Self {
            is_open: sign == Some("+"),
            from: from.to_owned(),
            to: to.to_owned(),
            protocols: Vec::new(),
            families: Vec::new(),
            numbers: Vec::new(),
        };
        for word in words {
            match word {
                "tcp" => line.protocols.push(Protocol::Tcp),
                "udp" => line.protocols.push(Protocol::Udp),
                "icmp" => line.protocols.push(Protocol::Icmp),
                "v4" => line.families.push(true),
                "v6" => line.families.push(false),
                number => line.numbers.push(number.parse().expect("a number")),
            }
        }
        line
    }

    fn is_about(&self, question: Question) -> bool {
        fn one_of<T: PartialEq>(list: &[T], it: &T) -> bool {
            list.is_empty() || list.contains(it)
        }
        let names = |list: &str, pod: char| list == "*" || list.contains(pod);
        names(&self.from, question.from)
            && names(&self.to, question.to)
            && one_of(&self.protocols, &question.protocol)
            && one_of(&self.families, &question.is_v4)
            && one_of(&self.numbers, &question.number)
    }
}
