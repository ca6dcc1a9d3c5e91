//! A place where a task stops until the scheduler picks it again.

use crate::effect::Point;
use crate::world::Shared;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Ready from the next scheduling step on in which its task is picked.
pub struct Pause {
    shared: Shared,
    point: Option<Point>,
    since: u64,
}

impl Pause {
    pub fn new(shared: &Shared, point: Point) -> Self {
        Self {
            shared: shared.clone(),
            point: Some(point),
            since: 0,
        }
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let point = self.point.take();
        let since = self.since;
        let (tick, ready) = self.shared.with(|world| match point {
            Some(point) => {
                world.arrive(point);
                (world.tick, false)
            }
            // A task may look at the same place twice in one step; it goes on in the next.
            None => (since, world.tick > since),
        });
        self.since = tick;
        if ready {
            return Poll::Ready(());
        }
        // The scheduler asks anyway; a runtime that drives shipped loops needs to be told.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
