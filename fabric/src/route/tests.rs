use super::*;
use crate::loopback::Hub;
use crate::shm::Config;
use crate::testing::onesided::{Ends, all_cases};
use crate::testing::{Heard, Recorder, bytes_of};
use crate::{Memory, Reach};

const SHM: Config = Config {
    peers_max: 4,
    ring_bytes_min: 2 << 10,
    ring_bytes: 8 << 10,
    ring_bytes_max: 8 << 10,
    growth_bytes_max: 0,
};

/// Returns a route over loopback and shared memory.
fn route(hub: &Hub) -> Route {
    without_ofi(Some(hub.port()), Some(Shm::open(&SHM).unwrap()))
}

fn shm_only() -> Route {
    without_ofi(None, Some(Shm::open(&SHM).unwrap()))
}

fn without_ofi(loopback: Option<Loopback>, shm: Option<Shm>) -> Route {
    let ports = Ports {
        loopback,
        shm,
        #[cfg(feature = "ofi")]
        ofi: None,
        delay: None,
    };
    Route::new(ports).unwrap()
}

/// Polls until a poll finds no events, and returns the events.
fn heard(route: &mut Route) -> Vec<Heard> {
    let mut sink = Recorder::default();
    while route.poll(&mut sink).unwrap() > 0 {}
    sink.0
}

fn heard_at_last(route: &mut Route) -> Vec<Heard> {
    let mut sink = Recorder::default();
    for _ in 0..POLLS_MAX {
        if route.poll(&mut sink).unwrap() > 0 {
            return [sink.0, heard(route)].concat();
        }
    }
    panic!("nothing was heard in {POLLS_MAX} polls");
}

const POLLS_MAX: usize = 3_000_000;

fn packet(bytes: &[u8]) -> Heard {
    Heard::Packet(bytes.to_vec())
}

#[test]
fn each_peer_is_reached_by_the_best_path() {
    let hub = Hub::new();
    let (mut a, mut b, mut c) = (route(&hub), route(&hub), shm_only());
    let (to_b, to_c) = (a.resolve(&b.address()).unwrap(), a.resolve(&c.address()).unwrap());
    assert_eq!(a.caps_for(to_b).name, "loopback");
    assert_eq!(a.caps_for(to_c).name, "samite-shm");
    assert_eq!(a.explain(to_b).unwrap(), "loopback: it is in this process");
    assert!(a.explain(to_c).unwrap().starts_with("samite-shm: it is on this host"));
    assert_eq!(a.explain(PeerId(2)), None);
    assert_eq!(a.resolve(&b.address()), Ok(to_b), "known again");
    assert_eq!(a.send(to_b, b"to ", b"b"), Ok(Post::Done));
    assert_eq!(a.send(to_c, b"to ", b"c"), Ok(Post::Done));
    assert_eq!([&a, &b, &c].map(Port::seems_idle), [true, false, false]);
    assert_eq!(heard(&mut b), [packet(b"to b")]);
    assert_eq!(heard(&mut c), [packet(b"to c")]);
    assert_eq!([&b, &c].map(Port::seems_idle), [true; 2]);
    let to_a = a.resolve(&a.address()).unwrap();
    assert_eq!(a.send(to_a, b"to a", &[]), Ok(Post::Done));
    assert_eq!(heard(&mut a), [packet(b"to a")]);
}

#[test]
fn a_path_that_does_not_lead_there_is_explained() {
    let (mut here, there) = (route(&Hub::new()), route(&Hub::new()));
    let peer = here.resolve(&there.address()).unwrap();
    let why = here.explain(peer).unwrap();
    assert!(why.starts_with("samite-shm: it is on this host"), "{why}");
    assert!(why.ends_with("; not loopback: it is not in this process"), "{why}");
}

#[test]
fn without_a_path_all_reasons_are_told() {
    let hub = Hub::new();
    let mut here = without_ofi(Some(hub.port()), None);
    let reason = |here: &mut Route, there: &Address| match here.resolve(there) {
        Err(PortError::Unreachable { why }) => why,
        other => panic!("{other:?}"),
    };
    let other_hub = route(&Hub::new()).address();
    assert!(reason(&mut here, &other_hub).contains("loopback: it is not in this process"));
    assert!(reason(&mut here, &other_hub).contains("samite-shm: this process has no such port"));
    assert!(reason(&mut here, &Address(b"rt1\x09\0\0".to_vec())).contains("no port that this version knows"));
    let bad = here.resolve(&Address(b"shm1".to_vec()));
    assert!(matches!(bad, Err(PortError::BadAddress { .. })));
    assert!(matches!(Route::new(Ports::default()), Err(PortError::Unsupported { .. })));
}

#[test]
fn the_end_of_a_peer_is_told_if_there_is_no_path() {
    let address = route(&Hub::new()).address();
    let result = route(&Hub::new()).resolve(&address);
    assert!(matches!(result, Err(PortError::PeerEnded { .. })), "{result:?}");
}

#[test]
fn where_the_only_path_has_no_room_that_is_told() {
    let mut here = without_ofi(None, Some(Shm::open(&Config { peers_max: 1, ..SHM }).unwrap()));
    let (first, second) = (shm_only(), shm_only());
    here.resolve(&first.address()).unwrap();
    match here.resolve(&second.address()) {
        Err(PortError::Exhausted { hint, .. }) => {
            assert!(hint.contains("raise SAMITE_SHM_PEERS_MAX"), "{hint}")
        }
        other => panic!("{other:?}"),
    }
}

/// Returns a route over shared memory with room for one peer, and over the network.
#[cfg(feature = "ofi")]
fn with_ofi() -> Route {
    let config = crate::ofi::OfiConfig {
        provider: "tcp;ofi_rxm".into(),
        stays_on_host: true,
        ..crate::ofi::OfiConfig::default()
    };
    let shm = Shm::open(&Config { peers_max: 1, ..SHM }).unwrap();
    Route::new(Ports {
        loopback: None,
        shm: Some(shm),
        ofi: Some(OfiPort::open(&config).unwrap()),
        delay: None,
    })
    .unwrap()
}

#[test]
#[cfg(feature = "ofi")]
fn where_one_path_has_no_room_another_is_taken() {
    let [mut here, first, second] = std::array::from_fn(|_| with_ofi());
    let first = here.resolve(&first.address()).unwrap();
    let second = here.resolve(&second.address()).unwrap();
    assert_eq!((&*here.caps_for(first).name, &*here.caps_for(second).name), ("samite-shm", "tcp;ofi_rxm"));
    let why = here.explain(second).unwrap();
    assert!(why.contains("raise SAMITE_SHM_PEERS_MAX"), "{why}");
    // `there` has room for only one peer in shared memory.
    let [mut one, mut two, there] = std::array::from_fn(|_| with_ofi());
    let to_there = one.resolve(&there.address()).unwrap();
    assert_eq!(one.send(to_there, b"first", &[]), Ok(Post::Done));
    let to_there = two.resolve(&there.address()).unwrap();
    assert_eq!(two.caps_for(to_there).name, "tcp;ofi_rxm");
}

#[test]
fn the_caps_hold_on_every_path() {
    let route = route(&Hub::new());
    let (caps, shm, loopback) =
        (route.caps(), route.shm.as_ref().unwrap().port.caps(), route.loopback.as_ref().unwrap().port.caps());
    assert_eq!(caps.name, "loopback+samite-shm");
    assert_eq!(caps.packet_max, shm.packet_max.min(loopback.packet_max));
    assert_eq!((caps.put, caps.get, caps.change), (Reach::Shared, Reach::Shared, Reach::Shared));
    assert!(caps.fence && caps.passive);
    assert_eq!(caps.rma_max, shm.rma_max.min(loopback.rma_max));
}

#[test]
fn memory_is_registered_on_the_path_to_its_peer() {
    let hub = Hub::new();
    let (mut a, mut b, c) = (route(&hub), route(&hub), shm_only());
    let (to_b, to_c) = (a.resolve(&b.address()).unwrap(), a.resolve(&c.address()).unwrap());
    let to_a = b.resolve(&a.address()).unwrap();
    let (from, into) = (Region::new(Memory::new(vec![7u8; 8])), Region::new(Memory::zeroed(8)));
    let ours = a.register(to_b, &from, Access::LOCAL_READ).unwrap();
    let theirs = b.register(to_a, &into, Access::REMOTE_WRITE).unwrap();
    assert_eq!(a.put_imm(to_b, ours.local(2, 4), theirs.remote(1), 5, OpId(9)), Ok(Post::Over));
    assert_eq!(heard(&mut a), []);
    assert_eq!(heard(&mut b), [Heard::Notified(5)]);
    assert_eq!(bytes_of(&into), [0, 7, 7, 7, 7, 0, 0, 0]);
    let wrong = a.put(to_c, ours.local(0, 4), theirs.remote(0), OpId(1));
    assert_eq!(wrong, Err(PortError::OutOfBounds { offset: 0, len: 4 }), "registered for another path");
    assert!(matches!(a.register(to_c, &from, Access::REMOTE_READ), Err(PortError::Unsupported { .. })));
    a.deregister(ours);
    assert_eq!(
        a.put(to_b, ours.local(0, 4), theirs.remote(0), OpId(1)),
        Err(PortError::OutOfBounds { offset: 0, len: 4 })
    );
    assert!(from.reclaim().is_ok());
}

#[test]
fn one_sided_calls_do_what_they_say() {
    all_cases(|| {
        let hub = Hub::new();
        Ends::new(route(&hub), route(&hub), || {})
    });
    all_cases(|| Ends::new(shm_only(), shm_only(), || {}));
}

#[test]
fn losses_and_fences_are_in_the_names_of_the_route() {
    let hub = Hub::new();
    let (mut a, b, mut c) = (route(&hub), route(&hub), shm_only());
    let (to_c, to_b) = (a.resolve(&c.address()).unwrap(), a.resolve(&b.address()).unwrap());
    drop(b);
    assert_eq!(heard_at_last(&mut a), [Heard::Lost(to_b)]);
    assert_eq!(a.send(to_b, &[], &[]), Err(PortError::PeerGone(to_b)));
    let to_a = c.resolve(&a.address()).unwrap();
    a.fence_peer(to_c);
    assert_eq!(c.send(to_a, b"too late", &[]), Ok(Post::Done));
    assert_eq!(heard(&mut a), []);
    assert_eq!(a.send(to_c, &[], &[]), Err(PortError::PeerGone(to_c)));
    let stranger = PeerId(77);
    assert_eq!(a.send(stranger, &[], &[]), Err(PortError::PeerGone(stranger)));
}

/// The peer sends over shared memory, although this side reaches the peer over loopback. A fence must cut off both
/// paths.
#[test]
fn a_fence_cuts_all_paths() {
    let hub = Hub::new();
    let (mut a, b) = (route(&hub), route(&hub));
    let to_b = a.resolve(&b.address()).unwrap();
    assert_eq!(a.caps_for(to_b).name, "loopback");
    let Route { shm: Some(mut b_shm), .. } = b else { panic!("it has one") };
    let a_shm = a.shm.as_ref().unwrap().port.address();
    let by_shm = b_shm.port.resolve(&a_shm).unwrap();
    assert_eq!(b_shm.port.send(by_shm, b"1", &[]), Ok(Post::Done));
    assert_eq!(heard(&mut a)[0], packet(b"1"));
    a.fence_peer(to_b);
    assert_eq!(b_shm.port.send(by_shm, b"2", &[]), Ok(Post::Done));
    assert_eq!(heard(&mut a), []);
}

#[cfg(feature = "ofi")]
mod with_ofi {
    use super::*;
    use crate::ofi::{OfiConfig, OfiPort};

    fn network(shm: bool, seed: u64) -> Route {
        let config = OfiConfig { interface: Some("lo".into()), seed, ..OfiConfig::default() };
        let ports = Ports {
            shm: shm.then(|| Shm::open(&SHM).unwrap()),
            ofi: Some(OfiPort::open(&config).expect("tcp;ofi_rxm on lo")),
            ..Ports::default()
        };
        Route::new(ports).unwrap()
    }

    #[test]
    fn who_is_not_reached_in_memory_is_reached_by_libfabric() {
        let (mut a, mut near, mut far) = (network(true, 1), network(true, 2), network(false, 3));
        let (to_near, to_far) = (a.resolve(&near.address()).unwrap(), a.resolve(&far.address()).unwrap());
        assert_eq!(a.caps_for(to_near).name, "samite-shm");
        assert_eq!(a.caps_for(to_far).name, "tcp;ofi_rxm");
        assert_eq!(a.explain(to_far).unwrap(), "tcp;ofi_rxm: it has an address there");
        // Poll without traffic, until libfabric is polled only rarely.
        for route in [&mut a, &mut near, &mut far] {
            for _ in 0..3000 {
                assert_eq!(heard(route), []);
            }
        }
        let exchange = |from: &mut Route, to: &mut Route, peer: PeerId| {
            let mut sink = Recorder::default();
            let mut sent = false;
            for _ in 0..POLLS_MAX {
                sent = sent || from.send(peer, b"to ", b"you").unwrap() == Post::Done;
                assert_eq!(heard(from), []);
                if to.poll(&mut sink).unwrap() > 0 {
                    return assert_eq!(sink.0, [packet(b"to you")]);
                }
            }
            panic!("nothing arrived");
        };
        exchange(&mut a, &mut near, to_near);
        exchange(&mut a, &mut far, to_far);
        let to_a = far.resolve(&a.address()).unwrap();
        exchange(&mut far, &mut a, to_a);
    }

    #[test]
    fn a_peer_with_shorter_buffers_gets_shorter_packets() {
        let mut a = network(false, 1);
        let config = OfiConfig { interface: Some("lo".into()), packet_max: 4096, ..OfiConfig::default() };
        let b = Route::new(Ports { ofi: Some(OfiPort::open(&config).unwrap()), ..Ports::default() }).unwrap();
        let to_b = a.resolve(&b.address()).unwrap();
        assert!(a.caps().packet_max > 4096);
        assert_eq!(a.caps_for(to_b).packet_max, 4096);
        assert!(matches!(a.send(to_b, &[0; 4097], b""), Err(PortError::TooLong { max: 4096, .. })));
    }

    #[test]
    fn another_host_is_reached_by_libfabric_and_that_is_explained() {
        let (mut a, b) = (network(true, 1), network(true, 2));
        // Make the address look like one from another host, by changing the boot id, which lies behind the tags of
        // route and shm.
        let mut address = b.address();
        address.0[3 + 3 + 4] ^= 1;
        let peer = a.resolve(&address).unwrap();
        let why = a.explain(peer).unwrap();
        assert!(why.starts_with("tcp;ofi_rxm: ") && why.ends_with("it runs on another host"), "{why}");
    }
}
