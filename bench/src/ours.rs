//! Messages through the crate that users see.

use samite::World;

use crate::loops::Messages;
use crate::measure::EndError;

/// A rank of a job.
#[derive(Debug)]
pub(crate) struct Samite {
    world: World,
    /// What carries messages to the next rank: asked for while it is there.
    transport: String,
}

impl Samite {
    /// The rank of a world, which meets its neighbours.
    ///
    /// # Errors
    /// It does not reach them.
    pub(crate) fn new(world: World) -> Result<Self, EndError> {
        let (rank, size) = (world.rank(), world.size());
        let next = (rank + 1) % size;
        world.sendrecv(&[0_u8; 0], next, 0, &mut [0_u8; 0], (rank + size - 1) % size, 0)?;
        let transport = world.transport(next).unwrap_or_default();
        Ok(Self { world, transport })
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
        self.transport.clone()
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
