//! The loop that connects: both queue pairs made, connect, accept, complete connect, disconnect, all closed.

use softndk_ioctl::{MeasureResult, Status};
use softndk_kernel::pool::PoolBox;

use super::{
    TimedSpan,
    connection::{Connection, Route},
    interruption::Interruption,
    lane::Lane,
};
use crate::{driver::Driver, session::object::Callback, tags};

/// Cycles before the time is taken.
const WARM_UP: u64 = 16;

/// Makes and ends so many connections, one after the other. PASSIVE_LEVEL.
pub fn run(
    lane: &Lane<'_>,
    count: u64,
    interruption: &Interruption<'_>,
    result: &mut MeasureResult,
) -> Result<TimedSpan, Status> {
    let clock = &Driver::get().ok_or(Status::DEVICE_REMOVED)?.clock;
    // The loop ends the connections itself.
    let route = lane.route(Callback::IGNORED);
    let connection = PoolBox::try_new(tags::SESSION, Connection::new(false));
    let mut connection = connection.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
    cycles(&mut connection, &route, WARM_UP.min(count), interruption)?;
    let begun = clock.now();
    cycles(&mut connection, &route, count, interruption)?;
    let span = TimedSpan { begun, ended: clock.now() };
    result.elapsed = span.length();
    Ok(span)
}

fn cycles(
    connection: &mut Connection,
    route: &Route<'_>,
    count: u64,
    interruption: &Interruption<'_>,
) -> Result<(), Status> {
    for _ in 0..count {
        interruption.check()?;
        connection.connect(route, interruption)?;
        connection.disconnect(interruption)?;
        connection.close();
    }
    Ok(())
}
