//! Tests with a peer in another process, which is killed in the middle of traffic in both directions.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use super::*;

const ROUNDS: usize = 8;
const LEN: usize = 4 << 20;
const PACKET: usize = 9000;
/// The number of steps for which the test waits for a report of the loss after the peer was killed. If there is no
/// report by then, no operation was under way when the peer died, so none will report the loss.
const STEPS_AFTER: usize = 1000;
/// The environment variable with the path at which the peer, which runs this same program, finds its parent.
const RENDEZVOUS: &str = "SAMITE_TEST_RENDEZVOUS";

#[test]
fn a_killed_peer_takes_nobody_with_it() {
    const NAME: &str = "ofi::tests::killed::a_killed_peer_takes_nobody_with_it";
    if let Some(path) = samite_os::env::get(RENDEZVOUS) {
        return serve(&UnixStream::connect(path).expect("the parent listens"));
    }
    with_cleanup(NAME, || {
        let path = std::env::temp_dir().join(format!("samite-killed-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("a fresh path");
        let mut node = Node::open(1);
        for round in 0..ROUNDS {
            let mut peer = Command::new(std::env::current_exe().expect("the path of this program"))
                .args(["--exact", NAME])
                .env(RENDEZVOUS, &path)
                .stdout(Stdio::null())
                .spawn()
                .expect("this program starts");
            let (stream, _) = listener.accept().expect("the peer comes");
            // The number of steps before the kill grows by a different amount from round to round, so that the peers
            // die at different moments of the traffic.
            let steps = 20 + 97 * round * round;
            survive(&mut node, &stream, round, steps, || {
                peer.kill().expect("it runs");
                peer.wait().expect("it was a child");
            });
        }
        std::fs::remove_file(&path).expect("it is there");
    });
}

/// Exchanges packets and operations with the peer, lets it be killed after `steps` steps, and checks that all
/// operations end.
fn survive(node: &mut Node, stream: &UnixStream, round: usize, steps: usize, kill: impl FnOnce()) {
    let (ours, from) = node.region(pattern(LEN, round), ALL);
    let (to, into) = meet(node, stream, from);
    let first = 1_000_000 * round as u64;
    let (mut posted, mut step) = (first, 0);
    let mut kill = Some(kill);
    // Waits until a failed operation reports the peer as lost, for a limited number of steps. The peer is fenced
    // afterwards, even if no operation has failed.
    while !node.heard.0.contains(&Heard::Lost(to)) && step < steps + STEPS_AFTER {
        if step == steps {
            kill.take().expect("once")();
        }
        step += 1;
        let op = OpId(posted);
        let post = match posted % 3 {
            0 => node.port.put(to, from.local(LEN / 2, LEN / 2), into, op),
            1 => node.port.put_imm(to, from.local(LEN / 2, 5000), into, posted, op),
            _ => node.port.send_zcopy(to, b"head", from.local(LEN / 2, PACKET), op),
        };
        match post {
            Ok(Post::Done) => posted += 1,
            Ok(Post::Again | Post::Over) => {}
            // On a port without a fence, a post may be the first call to detect the death.
            Err(error) => assert!(error == PortError::PeerGone(to) || !node.port.caps().fence, "{error}"),
        }
        node.poll();
        node.heard.0.retain(|heard| !matches!(heard, Heard::Packet(_) | Heard::Notified(_)));
    }
    if let Some(kill) = kill {
        kill();
    }
    node.port.fence_peer(to);
    node.port.deregister(from);
    let fence = node.port.caps().fence;
    assert_eq!(ours.reclaim().is_ok(), fence, "round {round}: memory is held where there is no fence");
    node.poll();
    for op in first..posted {
        match node.result(op) {
            Some(Ok(()) | Err(Failure::PeerLost | Failure::Fenced)) => {}
            None if !fence => {}
            other => panic!("round {round}: operation {op} ended as {other:?}"),
        }
    }
    node.heard.0.clear();
}

/// Runs the peer until it is killed: it writes and sends to its parent.
fn serve(stream: &UnixStream) {
    let mut node = Node::open(2);
    let (_region, from) = node.region(vec![1; LEN], ALL);
    let (to, into) = meet(&mut node, stream, from);
    let mut op = 0;
    loop {
        for post in [
            node.port.put_imm(to, from.local(0, LEN / 4), into, op, OpId(op)),
            node.port.send(to, &[2; PACKET], &[]),
        ] {
            if post.expect("the parent outlives us") == Post::Done {
                op += 1;
            }
        }
        node.poll();
        node.heard.0.clear();
    }
}

/// Exchanges addresses and keys of registrations with the other side.
fn meet(node: &mut Node, mut stream: &UnixStream, registration: Registration) -> (PeerId, Remote) {
    let address = node.port.address().0;
    let keys = [registration.key, registration.base].map(u64::to_le_bytes);
    stream.write_all(&[&address[..], &keys.concat()].concat()).expect("the other side reads");
    let (mut theirs, mut keys) = (vec![0; address.len()], [[0; 8]; 2]);
    stream.read_exact(&mut theirs).expect("the other side writes");
    keys.iter_mut().for_each(|key| stream.read_exact(key).expect("the other side writes"));
    let [key, address] = keys.map(u64::from_le_bytes);
    (node.port.resolve(&Address(theirs)).expect("of the same kind"), Remote { key, address })
}
