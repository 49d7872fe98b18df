//! The runtime of a rank that was given up.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use samite_fabric::Memory;
use samite_fabric::loopback::Hub;
use samite_p2p::{Config, Engine, Identity, Pattern, Sent};

use super::*;

/// Condemns the rank once that is set.
#[derive(Clone, Default)]
struct Judge(Arc<Mutex<Option<Notice>>>);

impl Directory for Judge {
    fn request_address(&mut self, _: u32) {}
    fn poll(&mut self) -> Option<Notice> {
        self.0.lock().unwrap().take()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn leave(&mut self) {}
    fn panicked(&mut self) {}
}

/// A message may still arrive for a receive that has ended with the verdict.
#[test]
fn a_rank_that_was_given_up_reports_each_end_once() {
    let identity = Identity { rank: WorldRank(0), size: 1, incarnation: 7, secret: [9; 16] };
    let mut engine = Engine::new(Hub::new().port(), identity.clone(), Config::default());
    let address = engine.port().address();
    engine.introduce(WorldRank(0), 7, address).unwrap();
    while engine.poll(Time::ZERO, &mut ()).unwrap() > 0 {}
    let judge = Judge::default();
    let place = Place { host: 0, hosts: 1, neighbours: 1, address: None };
    let runtime = Runtime::new(engine, Box::new(judge.clone()), &identity, &place, Lane::ONLY).unwrap();
    let bounds = Bounds::default();
    let watcher = runtime.add_watcher();
    let receive = runtime.enter(&bounds).unwrap().start(|engine, now, deadline| {
        engine.irecv(now, Pattern::exact(1, 0, 5), Memory::zeroed(8), deadline).unwrap()
    });
    runtime.watch(receive, watcher, 3);
    *judge.0.lock().unwrap() = Some(Notice::Condemned { why: "its host was lost".to_owned() });
    let end = runtime.finish(receive, &mut (), &bounds).unwrap();
    assert!(matches!(end.result, Err(Error::Condemned { .. })));
    runtime.enter(&bounds).unwrap().start(|engine, now, deadline| {
        assert_eq!(engine.send(now, WorldRank(0), 1, 5, &[1; 8], deadline), Ok(Sent::Now));
        while engine.poll(now, &mut ()).unwrap() > 0 {}
        assert_eq!(engine.outcome(receive), Outcome::Ready);
    });
    assert!(runtime.take_end(watcher, &mut (), None).is_none());
}
