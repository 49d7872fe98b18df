//! One-sided operations of a port, with two ports in this thread.

use samite_fabric::shm::{Config, Shm};
use samite_fabric::{Access, Change, Changed, Local, Memory, OpId, PeerId, Port, Post, Region, Remote};

use super::Scenario;
use crate::callgrind::counted;

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "put_8_shm", run: |operations| put(operations) },
    Scenario { name: "put_bytes_8_shm", run: |operations| put_bytes(operations) },
    Scenario { name: "get_bytes_8_shm", run: |operations| get_bytes(operations) },
    Scenario { name: "change_shm", run: |operations| change(operations) },
];

/// A port, a place in the memory of a peer, and memory of its own.
struct Reached {
    port: Shm,
    to: PeerId,
    place: Remote,
    local: Local,
    _peer: Shm,
}

fn shared_memory() -> Reached {
    let open = || Shm::open(&Config::default()).expect("there is memory to share");
    let (mut port, mut peer) = (open(), open());
    let to = port.resolve(&peer.address()).expect("it is on this host");
    let from = peer.resolve(&port.address()).expect("it is on this host");
    let theirs = Region::shared(4096).expect("there is memory to share");
    let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let place = peer.register(from, &theirs, rights).expect("it is shared").remote(64);
    let ours = Region::new(Memory::zeroed(8));
    let local = port.register(to, &ours, Access::LOCAL_READ).expect("it is memory").local(0, 8);
    Reached { port, to, place, local, _peer: peer }
}

fn put(operations: u64) {
    let Reached { mut port, to, place, local, _peer } = shared_memory();
    for _ in 0..operations {
        assert_eq!(counted(|| port.put(to, local, place, OpId(0))), Ok(Post::Over));
    }
}

fn put_bytes(operations: u64) {
    let Reached { mut port, to, place, _peer, .. } = shared_memory();
    for _ in 0..operations {
        assert_eq!(counted(|| port.put_bytes(to, &[7; 8], place, OpId(0))), Ok(Post::Over));
    }
}

fn get_bytes(operations: u64) {
    let Reached { mut port, to, place, _peer, .. } = shared_memory();
    let mut into = [0; 8];
    for _ in 0..operations {
        assert_eq!(counted(|| port.get_bytes(to, &mut into, place)), Ok(Post::Over));
    }
}

fn change(operations: u64) {
    let Reached { mut port, to, place, _peer, .. } = shared_memory();
    for before in 0..operations {
        let changed = counted(|| port.change(to, Change::Add(1), place, OpId(0)));
        assert_eq!(changed, Ok(Changed::Over(before)));
    }
}
