//! Cores and memory of a host, and the distribution of ranks over them.

use roxmltree::{Document, Node, ParsingOptions};
use samite_control::Bind;
use samite_os::hwloc::{self, HwlocError};
use serde::Serialize;

/// The cores and NUMA nodes of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// The cores in the order of their places: cores that share a cache or a node are adjacent.
    pub cores: Vec<Core>,
    /// The NUMA nodes in the order of their numbers.
    pub numa_nodes: Vec<NumaNode>,
}

/// A core. Numbers are the system's, as in `taskset` and `numactl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Core {
    /// The core's processors: several if the core runs several threads.
    pub processors: Vec<u32>,
    /// The nearest NUMA node.
    pub numa_node: Option<u32>,
    /// The core's package.
    pub package: Option<u32>,
}

/// Memory that is near to some cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    /// The node's number.
    pub number: u32,
    /// The size of the node's memory in bytes.
    pub memory: u64,
}

/// The processors of a rank that is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The processors to which the rank is bound.
    pub(crate) processors: Vec<u32>,
    /// The number of ranks that are bound to these processors, including this rank.
    pub(crate) sharers: u32,
}

/// The reason why ranks cannot be bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The topology of this host is unknown.
    #[error(transparent)]
    Hwloc(#[from] HwlocError),
    /// hwloc's answer is malformed.
    #[error("libhwloc's description of this host cannot be read: {0}")]
    NotUnderstood(String),
    /// There are fewer cores than ranks.
    #[error(
        "{ranks} ranks cannot have a core each: {cores} may be used here; `--bind numa` lets ranks share"
    )]
    TooFewCores {
        /// The ranks of this host.
        ranks: u32,
        /// The cores that may be used.
        cores: usize,
    },
}

impl Topology {
    /// Returns the topology of this host, as hwloc reports it: without the processors and memory that the control group
    /// of this process forbids.
    ///
    /// # Errors
    /// [`TopologyError::Hwloc`], [`TopologyError::NotUnderstood`].
    pub fn of_this_host() -> Result<Topology, TopologyError> {
        Topology::from_xml(&hwloc::topology_xml()?)
    }

    /// Parses hwloc's XML, version 2.
    fn from_xml(xml: &str) -> Result<Topology, TopologyError> {
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        // hwloc's buffer may end with more than one NUL.
        let document = Document::parse_with_options(xml.trim_end_matches('\0'), options)
            .map_err(|error| TopologyError::NotUnderstood(error.to_string()))?;
        let objects = || document.descendants().filter(|node| node.has_tag_name("object"));
        let processors_in = |node: Node<'_, '_>| -> Vec<u32> {
            node.descendants().filter(|&node| is(node, "PU")).filter_map(number).collect()
        };
        let cores = objects()
            // Some virtual machines have processors without cores.
            .filter(|&node| is(node, "Core") || is(node, "PU") && ancestor(node, "Core").is_none())
            .map(|node| Core {
                processors: processors_in(node),
                numa_node: node.ancestors().find_map(|node| memory_of(node).next()).and_then(number),
                package: ancestor(node, "Package").and_then(number),
            });
        let numa_nodes = objects().filter(|&node| is(node, "NUMANode")).filter_map(|node| {
            let memory = node.attribute("local_memory").and_then(|bytes| bytes.parse().ok());
            Some(NumaNode { number: number(node)?, memory: memory.unwrap_or(0) })
        });
        let mut topology = Topology { cores: cores.collect(), numa_nodes: numa_nodes.collect() };
        topology.cores.retain(|core| !core.processors.is_empty());
        topology.numa_nodes.sort_by_key(|node| node.number);
        match topology.cores.is_empty() {
            true => Err(TopologyError::NotUnderstood("it has no processor".into())),
            false => Ok(topology),
        }
    }

    /// Returns the part of the topology that contains only processors for which `may_use` is true.
    pub(crate) fn within(mut self, may_use: impl Fn(u32) -> bool) -> Topology {
        for core in &mut self.cores {
            core.processors.retain(|&processor| may_use(processor));
        }
        self.cores.retain(|core| !core.processors.is_empty());
        self
    }

    /// Returns the slot of each of the `ranks` ranks, which must be all ranks of the job on this host. Returns an empty
    /// list if ranks are not bound.
    pub(crate) fn slots(&self, ranks: u32, bind: Bind) -> Result<Vec<Slot>, TopologyError> {
        let cores = self.cores.len();
        match bind {
            Bind::None => Ok(Vec::new()),
            Bind::Core if (ranks as usize) > cores => Err(TopologyError::TooFewCores { ranks, cores }),
            Bind::Core => Ok(self.cores[..ranks as usize]
                .iter()
                .map(|core| Slot { processors: core.processors.clone(), sharers: 1 })
                .collect()),
            Bind::Numa => {
                // Choose the node of a rank in two steps: spread the ranks over the cores, then take the node of the
                // chosen core.
                let node_of = |rank: u32| {
                    self.cores[(u64::from(rank) * cores as u64 / u64::from(ranks)) as usize].numa_node
                };
                Ok((0..ranks)
                    .map(|rank| {
                        let node = node_of(rank);
                        let of_node = self.cores.iter().filter(|core| core.numa_node == node);
                        let mut processors: Vec<_> =
                            of_node.flat_map(|core| core.processors.iter().copied()).collect();
                        processors.sort_unstable();
                        let sharers = (0..ranks).filter(|&other| node_of(other) == node).count() as u32;
                        Slot { processors, sharers }
                    })
                    .collect())
            }
        }
    }
}

/// Returns true if the node is an object of type `kind`.
fn is(node: Node<'_, '_>, kind: &str) -> bool {
    node.has_tag_name("object") && node.attribute("type") == Some(kind)
}

fn ancestor<'a, 'i>(node: Node<'a, 'i>, kind: &str) -> Option<Node<'a, 'i>> {
    node.ancestors().skip(1).find(|&node| is(node, kind))
}

/// Returns the NUMA nodes of an object. They are children of the object, or children of a memory-side cache that is a
/// child of the object.
fn memory_of<'a, 'i>(node: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    let behind = |node: Node<'a, 'i>| match is(node, "MemCache") {
        true => node.descendants().find(|&node| is(node, "NUMANode")),
        false => Some(node).filter(|&node| is(node, "NUMANode")),
    };
    node.children().filter_map(behind)
}

/// Returns the number that the system gives to the object.
fn number(node: Node<'_, '_>) -> Option<u32> {
    node.attribute("os_index")?.parse().ok()
}

#[cfg(test)]
mod tests;
