//! Tests in which another process directly reads borrowed memory of the heap.

use std::fs;

use samite_fabric::{Exposure, Remote, SplitMix64};

use super::*;

#[test]
fn whatever_is_large_can_be_read() {
    let (mut a, mut b) = (Shm::open(&CONFIG).unwrap(), Shm::open(&CONFIG).unwrap());
    let (to_b, to_a) = (a.resolve(&b.address()).unwrap(), b.resolve(&a.address()).unwrap());
    let bytes: Vec<u8> = (0..3_000_000usize).map(|i| (i * 7 + i / 300) as u8).collect();
    let (boxed, text) = (bytes.clone().into_boxed_slice(), "text".repeat(10_000));
    for slice in [&bytes[..], &bytes[1..70_000], &boxed[2_999_999..], text.as_bytes()] {
        let exposure = a.expose(to_b, slice).unwrap();
        for at in 0..9.min(slice.len()) {
            let place = Remote { address: exposure.at.address + at as u64, ..exposure.at };
            let mut into = vec![0; slice.len() - at];
            assert_eq!(b.read(to_a, place, &mut into), Ok(true));
            assert!(into == slice[at..]);
        }
        let at = exposure.at;
        drop(exposure);
        assert_eq!(b.read(to_a, at, &mut [0]), Ok(false));
    }
    assert!(a.expose(to_b, &[0; 100_000]).is_none() && a.expose(to_b, &bytes.repeat(0)).is_none());
    assert!(a.expose(to_b, "short".repeat(10).as_bytes()).is_none());
    // The descriptors in these addresses are not that of the peer's heap.
    let exposure = a.expose(to_b, &bytes).unwrap();
    for address in [2 << 40, u64::MAX] {
        let read = b.read(to_a, Remote { address, ..exposure.at }, &mut [0]);
        assert!(matches!(read, Err(PortError::PeerEnded { .. })));
    }
    assert_eq!(b.read(to_a, exposure.at, &mut [0]), Ok(true));
    // Both calls fail for an unknown peer.
    let stranger = PeerId(9);
    assert!(a.expose(stranger, &bytes).is_none());
    assert_eq!(b.read(stranger, exposure.at, &mut [0]), Err(PortError::PeerGone(stranger)));
    a.fence_peer(to_b);
    b.fence_peer(to_a);
    assert!(a.expose(to_b, &bytes).is_none());
    assert_eq!(b.read(to_a, exposure.at, &mut [0]), Err(PortError::PeerGone(to_a)));
}

/// The parent ends exposures while the child reads, and overwrites the bytes immediately afterwards.
#[test]
fn what_is_read_is_whole_or_is_known_not_to_be() {
    let test = "heap::what_is_read_is_whole_or_is_known_not_to_be";
    let (rounds, len) = (2000, 256 << 10);
    let mut port = Shm::open(&CONFIG).unwrap();
    if let Some(parent) = parent() {
        let parent = port.resolve(&parent).unwrap();
        let address = port.address().0;
        send(&mut port, parent, &address).unwrap();
        let mut into = vec![0; len];
        for round in 0..rounds {
            let (at, len) = place_in(&receive(&mut port));
            let expected = vec![round as u8; len];
            let mut reads = 0;
            while port.read(parent, at, &mut into[..len]).unwrap() {
                assert!(into[..len] == expected);
                reads += 1;
                if reads == 1 {
                    send(&mut port, parent, READING).unwrap();
                }
            }
            send(&mut port, parent, ENDED).unwrap();
        }
        return;
    }
    let mut child = spawn(test, &port);
    let to = Address(receive(&mut port));
    let to = port.resolve(&to).unwrap();
    let mut hear = |port: &mut Shm, awaited: &[u8]| {
        let mut log = Log::default();
        while !log.packets.iter().any(|packet| packet == awaited) {
            // The child sends nothing more once it has found a wrong byte.
            if port.poll(&mut log).unwrap() == 0 {
                assert_ne!(
                    child.try_wait().unwrap().and_then(|status| status.code()),
                    Some(101),
                    "it failed"
                );
                std::thread::yield_now();
            }
        }
    };
    let mut rng = SplitMix64::new(1);
    let mut bytes = vec![0; len];
    for round in 0..rounds {
        bytes.fill(round as u8);
        let len = 1 + rng.below(len as u64) as usize;
        let exposure = port.expose(to, &bytes[..len]).unwrap();
        send(&mut port, to, &place_of(&exposure, len)).unwrap();
        if round % 4 > 0 {
            hear(&mut port, READING);
        }
        (0..rng.below(5000)).for_each(|_| std::hint::spin_loop());
        drop(exposure);
        bytes.fill(!round as u8);
        hear(&mut port, ENDED);
    }
    assert!(child.wait().unwrap().success());
}

const READING: &[u8] = b"reading";
const ENDED: &[u8] = b"ended";

/// The exposed memory of a killed process can still be read by a process that has it mapped.
#[test]
fn an_owner_killed_while_it_is_read_harms_nobody() {
    let test = "heap::an_owner_killed_while_it_is_read_harms_nobody";
    let mut port = Shm::open(&CONFIG).unwrap();
    let bytes = vec![7; 4 << 20];
    if let Some(parent) = parent() {
        let parent = port.resolve(&parent).unwrap();
        let exposure = port.expose(parent, &bytes).unwrap();
        let place = place_of(&exposure, bytes.len());
        let address = port.address().0;
        send(&mut port, parent, &[place, address].concat()).unwrap();
        loop {
            receive(&mut port);
        }
    }
    let mut into = vec![0; bytes.len()];
    for is_read_before in [true, false, true] {
        let mut child = spawn(test, &port);
        let packet = receive(&mut port);
        let (place, address) = packet.split_at(24);
        let (at, _) = place_in(place);
        let to = port.resolve(&Address(address.to_vec())).unwrap();
        let mut read = |port: &mut Shm| {
            into.fill(0);
            port.read(to, at, &mut into).inspect(|whole| assert!(!whole || into == bytes))
        };
        if is_read_before {
            assert_eq!((read(&mut port), peers_heaps()), (Ok(true), 1));
            child.kill().unwrap();
            // The process may take a while to die.
            while child.try_wait().unwrap().is_none() {
                assert_eq!(read(&mut port), Ok(true));
            }
            assert_eq!(read(&mut port), Ok(true));
        } else {
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(matches!(read(&mut port), Err(PortError::PeerEnded { .. })));
        }
        port.fence_peer(to);
        assert_eq!((read(&mut port), peers_heaps()), (Err(PortError::PeerGone(to)), 0));
    }
}

/// The heap uses the available room; if there is too little, all allocations come from the system.
#[test]
fn a_process_under_limits_has_memory_all_the_same() {
    let test = "heap::a_process_under_limits_has_memory_all_the_same";
    if parent().is_some() {
        let bytes: Vec<Vec<u8>> = (1..100).map(|i| vec![i; usize::from(i) * 10_000]).collect();
        assert!((1..100).zip(&bytes).all(|(i, bytes)| bytes.iter().all(|&byte| byte == i)));
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let has_heap = maps.contains("memfd:samite-heap");
        std::io::Write::write_all(&mut std::io::stderr(), has_heap.to_string().as_bytes()).unwrap();
        return;
    }
    let port = Shm::open(&CONFIG).unwrap();
    for (limit, has_heap) in
        [("-v unlimited", true), ("-v 8000000", true), ("-v 3000000", false), ("-f 100", false)]
    {
        let output = limited(limit, &command(test, &port)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said == has_heap.to_string(), "{limit}: {said}");
    }
}

/// Returns the number of mappings of the heaps of other processes. These mappings are read-only.
fn peers_heaps() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(" r--s ") && line.contains("memfd:samite-heap")).count()
}

fn place_of(exposure: &Exposure, len: usize) -> Vec<u8> {
    [exposure.at.key, exposure.at.address, len as u64].map(u64::to_le_bytes).concat()
}

fn place_in(packet: &[u8]) -> (Remote, usize) {
    let [key, address, len] = [0, 1, 2].map(|i| u64::from_le_bytes(packet[8 * i..][..8].try_into().unwrap()));
    (Remote { key, address }, len as usize)
}
