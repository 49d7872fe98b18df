//! Events for the crate `tracing`, if the feature `tracing` is enabled.

pub(crate) use samite_fabric::event;

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use std::fmt::{Debug, Write};
    use std::sync::{Arc, Mutex};

    use samite_fabric::loopback::Hub;
    use samite_fabric::{Memory, Port};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use crate::{Cause, Config, Engine, Identity, Pattern, Source, Time, WorldRank};

    /// Keeps each event as a line.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<String>>);

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "samite"
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = String::new();
            event.record(&mut Words(&mut line));
            *self.0.lock().unwrap() += &(line + "\n");
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    struct Words<'a>(&'a mut String);

    impl Visit for Words<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = match field.name() {
                "message" => write!(self.0, "{value:?}"),
                name => write!(self.0, " {name}={value:?}"),
            };
        }
    }

    #[test]
    fn a_message_and_a_verdict_are_told_of() {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            let port = Hub::new().port();
            let address = port.address();
            let identity = Identity { rank: WorldRank(0), size: 2, incarnation: 7, secret: [0; 16] };
            let mut engine = Engine::new(port, identity, Config::default());
            engine.introduce(WorldRank(0), 7, address).unwrap();
            for _ in 0..10 {
                engine.poll(Time::ZERO, &mut ()).unwrap();
            }
            let pattern = Pattern { context: 1, source: Source::rank(0), tag: 5, mask: u64::MAX };
            let received = engine.irecv(Time::ZERO, pattern, Memory::zeroed(8), Time::NEVER).unwrap();
            let sent = engine.isend(Time::ZERO, WorldRank(0), 1, 5, Memory::zeroed(8), Time::NEVER).unwrap();
            for _ in 0..10 {
                engine.poll(Time::ZERO, &mut ()).unwrap();
            }
            for request in [received, sent] {
                engine.collect(request, &mut ()).unwrap().result.unwrap();
            }
            engine.peer_failed(WorldRank(1), None, Cause::Died("it was killed".to_owned())).unwrap();
        });
        let told = lines.0.lock().unwrap();
        for line in [
            "receive begins peer=0 tag=5 bytes=8",
            "sent eagerly peer=0 tag=5 bytes=8",
            "succeeded peer=0 tag=5 bytes=8",
            "peer failed peer=1 cause=",
        ] {
            assert!(told.lines().any(|told| told.starts_with(line)), "{line} is missing in:\n{told}");
        }
    }
}
