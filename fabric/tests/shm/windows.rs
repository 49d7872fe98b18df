//! One-sided operations of several processes on one memory.

use samite_fabric::{Access, Change, Changed, Region, Remote};

use super::*;

const TEST: &str = "windows::processes_change_and_write_one_memory";
const CHILDREN: usize = 3;
const ROUNDS: u64 = 20_000;

/// The offset of the word that holds a sum.
const SUM: usize = 0;
/// The offset of the word that is a lock.
const LOCK: usize = 8;
/// The offset of the counter that the lock protects.
const GUARDED: usize = 16;
/// The offset of the words of the children.
const OWN: usize = 64;
const LEN: usize = OWN + 64 * CHILDREN;

/// Each process adds to one word, by the port and through a window. It increments a second word under a lock, which is
/// a third word. It also writes words of its own, of which readers never see only a part.
#[test]
fn processes_change_and_write_one_memory() {
    if let Some(parent) = parent() {
        return child(&parent);
    }
    let mut port = Shm::open(&CONFIG).unwrap();
    let memory = Region::shared(LEN).unwrap();
    let mut children: Vec<_> = (0..CHILDREN).map(|_| spawn(TEST, &port)).collect();
    let mut log = Log::default();
    while log.packets.len() < CHILDREN {
        port.poll(&mut log).unwrap();
    }
    let addresses = log.packets.into_iter().map(Address);
    let peers: Vec<_> = addresses.map(|address| port.resolve(&address).unwrap()).collect();
    let registration = port.register(peers[0], &memory, Access::REMOTE_READ | Access::REMOTE_WRITE).unwrap();
    for (index, &peer) in peers.iter().enumerate() {
        let place = registration.remote(0);
        send(&mut port, peer, &[place.key, place.address, index as u64].map(u64::to_le_bytes).concat())
            .unwrap();
    }
    let window = memory.window(0..LEN).unwrap();
    let mut done = 0;
    while done < CHILDREN {
        for index in 0..CHILDREN {
            for at in (0..64).step_by(8) {
                let word = window.load(OWN + 64 * index + at).unwrap();
                assert_eq!(word, u64::from(word as u8) * 0x0101_0101_0101_0101, "a word in parts: {word:x}");
            }
        }
        let mut log = Log::default();
        port.poll(&mut log).unwrap();
        done += log.packets.len();
    }
    let total = CHILDREN as u64 * ROUNDS;
    assert_eq!([SUM, LOCK, GUARDED].map(|at| window.load(at).unwrap()), [2 * total, 0, total]);
    assert!(window.is_open());
    port.deregister(registration);
    // The children's packets arrive in another order than the children were started.
    for &peer in &peers {
        send(&mut port, peer, b"ended").unwrap();
    }
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
}

fn child(parent: &Address) {
    let mut port = Shm::open(&CONFIG).unwrap();
    let parent = port.resolve(parent).unwrap();
    let address = port.address().0;
    send(&mut port, parent, &address).unwrap();
    let packet = receive(&mut port);
    let numbers: Vec<_> =
        packet.chunks(8).map(|number| u64::from_le_bytes(number.try_into().expect("8 bytes"))).collect();
    let [key, address, index] = numbers[..] else { panic!("three numbers") };
    let place = |offset: usize| Remote { key, address: address + offset as u64 };
    let window = port.map(parent, place(0), LEN).expect("it is granted");
    assert!(port.map(parent, place(1), LEN).is_none(), "no byte more");
    for round in 0..ROUNDS {
        let changed = port.change(parent, Change::Add(1), place(SUM), OpId(0)).unwrap();
        assert!(matches!(changed, Changed::Over(_)), "{changed:?}");
        window.change(SUM, Change::Add(1)).unwrap();

        while window.change(LOCK, Change::CompareSwap { expected: 0, new: 1 + index }).unwrap() != 0 {
            std::thread::yield_now();
        }
        let mut guarded = [0; 8];
        assert_eq!(port.get_bytes(parent, &mut guarded, place(GUARDED)), Ok(Post::Over));
        let next = (u64::from_ne_bytes(guarded) + 1).to_ne_bytes();
        assert_eq!(port.put_bytes(parent, &next, place(GUARDED), OpId(0)), Ok(Post::Over));
        let unlocked = port.change(parent, Change::Swap(0), place(LOCK), OpId(0)).unwrap();
        assert_eq!(unlocked, Changed::Over(1 + index), "it was this process's");

        let own = OWN + 64 * index as usize;
        let line = [round as u8; 64];
        match round % 2 {
            0 => assert_eq!(port.put_bytes(parent, &line, place(own), OpId(0)), Ok(Post::Over)),
            _ => window.write(own, &line).unwrap(),
        }
    }
    send(&mut port, parent, b"done").unwrap();
    assert_eq!(receive(&mut port), b"ended");
    assert!(!window.is_open() && port.map(parent, place(0), LEN).is_none());
    assert_eq!(port.get_bytes(parent, &mut [0; 8], place(0)), Err(PortError::Refused));
    // The memory lives as long as the window.
    window.store(OWN, 0).unwrap();
    assert_eq!(window.load(OWN), Ok(0));
}
