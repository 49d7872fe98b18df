//! Messages through the crate that users see.

use samite::World;

use crate::loops::Messages;
use crate::measure::EndError;

/// One of the two ranks of a job.
#[derive(Debug)]
pub(crate) struct Samite {
    world: World,
    other: u32,
}

impl Samite {
    /// The rank of a world of two.
    pub(crate) fn new(world: World) -> Self {
        let other = 1 - world.rank();
        Self { world, other }
    }
}

impl Messages for Samite {
    fn rank(&self) -> u32 {
        self.world.rank()
    }

    fn transport(&self) -> String {
        self.world.transport(self.other).unwrap_or_default()
    }

    #[inline]
    fn send(&mut self, tag: u64, data: &[u8]) -> Result<(), EndError> {
        Ok(self.world.send(data, self.other, tag)?)
    }

    #[inline]
    fn recv(&mut self, tag: u64, into: &mut [u8]) -> Result<(), EndError> {
        self.world.recv(into, self.other, tag)?;
        Ok(())
    }

    fn send_many(&mut self, tag: u64, data: &[u8], count: usize) -> Result<(), EndError> {
        let other = self.other;
        Ok(self.world.scope(|scope| (0..count).try_for_each(|_| scope.isend(data, other, tag).map(drop)))?)
    }

    fn recv_many(&mut self, tag: u64, into: &mut [Vec<u8>]) -> Result<(), EndError> {
        let other = self.other;
        Ok(self.world.scope(|scope| {
            into.iter_mut().try_for_each(|buffer| scope.irecv(buffer, other, tag).map(drop))
        })?)
    }
}
