//! Messages through the crate that users see.

use samite::World;

use crate::loops::Messages;
use crate::measure::EndError;

/// A rank of a job.
#[derive(Debug)]
pub(crate) struct Samite {
    world: World,
}

impl Samite {
    /// The rank of a world.
    pub(crate) fn new(world: World) -> Self {
        Self { world }
    }
}

impl Messages for Samite {
    fn rank(&self) -> u32 {
        self.world.rank()
    }

    fn size(&self) -> u32 {
        self.world.size()
    }

    fn transport(&self) -> String {
        self.world.transport((self.rank() + 1) % self.size()).unwrap_or_default()
    }

    #[inline]
    fn send(&mut self, to: u32, tag: u64, data: &[u8]) -> Result<(), EndError> {
        Ok(self.world.send(data, to, tag)?)
    }

    #[inline]
    fn recv(&mut self, from: u32, tag: u64, into: &mut [u8]) -> Result<(), EndError> {
        self.world.recv(into, from, tag)?;
        Ok(())
    }

    fn send_many(&mut self, to: u32, tag: u64, data: &[u8], count: usize) -> Result<(), EndError> {
        Ok(self.world.scope(|scope| (0..count).try_for_each(|_| scope.isend(data, to, tag).map(drop)))?)
    }

    fn recv_many(&mut self, from: u32, tag: u64, into: &mut [Vec<u8>]) -> Result<(), EndError> {
        Ok(self
            .world
            .scope(|scope| into.iter_mut().try_for_each(|buffer| scope.irecv(buffer, from, tag).map(drop)))?)
    }

    fn exchange(&mut self, tag: u64, data: &[u8], into: &mut [Vec<u8>]) -> Result<(), EndError> {
        let (rank, size) = (self.rank(), self.size());
        let reach = into.len() as u32;
        Ok(self.world.scope(|scope| {
            for (distance, buffer) in (1..).zip(into) {
                scope.irecv(buffer, (rank + size - distance) % size, tag)?;
            }
            (1..=reach).try_for_each(|distance| scope.isend(data, (rank + distance) % size, tag).map(drop))
        })?)
    }
}
