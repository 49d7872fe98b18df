use super::*;

/// The output of `HWLOC_SYNTHETIC="package:2 [numa(memory=1GB)] core:2 pu:2" lstopo --of xml`, without the `info`
/// elements.
const TWO_NODES: &str = include_str!("two-nodes.xml");

fn two_nodes() -> Topology {
    Topology::from_xml(TWO_NODES).unwrap()
}

fn processors(slots: &[Slot]) -> Vec<&[u32]> {
    slots.iter().map(|slot| slot.processors.as_slice()).collect()
}

#[test]
fn cores_know_their_node_and_package() {
    let topology = two_nodes();
    assert_eq!(topology.numa_nodes.iter().map(|node| node.number).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(topology.numa_nodes[1].memory, 1_000_000_000);
    let core = |first, place| Core {
        processors: vec![first, first + 1],
        numa_node: Some(place),
        package: Some(place),
    };
    assert_eq!(topology.cores, [core(0, 0), core(2, 0), core(4, 1), core(6, 1)]);
}

#[test]
fn a_core_belongs_to_one_rank() {
    let slots = two_nodes().slots(3, Bind::Core).unwrap();
    assert_eq!(processors(&slots), [[0, 1], [2, 3], [4, 5]]);
    assert!(slots.iter().all(|slot| slot.sharers == 1));
    assert_eq!(two_nodes().slots(5, Bind::Core), Err(TopologyError::TooFewCores { ranks: 5, cores: 4 }));
    assert_eq!(two_nodes().slots(5, Bind::None), Ok(Vec::new()));
}

#[test]
fn nodes_are_dealt_out_in_equal_shares() {
    for (ranks, on_first) in [(1, 1), (2, 1), (3, 2), (4, 2), (8, 4), (1001, 501)] {
        let slots = two_nodes().slots(ranks, Bind::Numa).unwrap();
        let (first, second) = slots.split_at(on_first as usize);
        assert!(first.iter().all(|slot| slot.processors == [0, 1, 2, 3] && slot.sharers == on_first));
        assert!(
            second.iter().all(|slot| slot.processors == [4, 5, 6, 7] && slot.sharers == ranks - on_first)
        );
    }
}

#[test]
fn processors_that_may_not_be_used_are_left_out() {
    let topology = two_nodes().within(|processor| [1, 4, 5].contains(&processor));
    assert_eq!(processors(&topology.slots(2, Bind::Core).unwrap()), [&[1][..], &[4, 5]]);
    assert_eq!(processors(&topology.slots(2, Bind::Numa).unwrap()), [&[1][..], &[4, 5]]);
    assert!(topology.slots(3, Bind::Core).is_err());
}

#[test]
fn hosts_without_cores_and_with_memory_behind_caches_are_understood() {
    let xml = r#"<topology version="2.0"><object type="Machine" os_index="0">
        <object type="MemCache"><object type="NUMANode" os_index="3"/></object>
        <object type="PU" os_index="7"/><object type="PU" os_index="9"/>
        </object></topology>"#;
    let topology = Topology::from_xml(xml).unwrap();
    let core = |processor| Core { processors: vec![processor], numa_node: Some(3), package: None };
    assert_eq!(topology.cores, [core(7), core(9)]);
    assert_eq!(topology.numa_nodes, [NumaNode { number: 3, memory: 0 }]);
}

#[test]
fn an_invalid_topology_is_refused() {
    for xml in ["", "<", "<topology/>", "<topology><object type=\"Core\"/></topology>"] {
        assert!(matches!(Topology::from_xml(xml), Err(TopologyError::NotUnderstood(_))), "{xml}");
    }
}

#[test]
fn this_host_is_understood() {
    let topology = Topology::of_this_host().unwrap();
    let (cores, granted) = (topology.cores.len(), std::thread::available_parallelism().unwrap().get());
    assert!(cores >= 1 && topology.cores.iter().map(|core| core.processors.len()).sum::<usize>() >= granted);
}
