//! What objects of the engine cost to make and to close: `cargo bench -p softndk-engine`.

use criterion::{Criterion, criterion_group, criterion_main};
use softndk_engine::{QueuePair, QueuePairSettings, Semantics};
use softndk_engine_kit::{Depths, Pair};

/// A queue pair made, closed and dropped.
fn queue_pair(criterion: &mut Criterion) {
    let mut pair =
        Pair::with(Semantics::NDK, Depths { completions: 256, initiator: 64, receive: 64, sges: 4, inline: 64 });
    criterion.bench_function("queue_pair_made_and_closed", |bencher| {
        bencher.iter(|| {
            let settings = QueuePairSettings {
                receive_queue: &pair.a.receiver,
                initiator_queue: &pair.a.initiator,
                context: 1,
                receive_depth: 64,
                initiator_depth: 64,
                receive_sges: 4,
                initiator_sges: 4,
                inline_data: 64,
                shared: None,
            };
            let made = QueuePair::create(&pair.a.domain, settings, pair.world.consumer_object(1)).unwrap();
            drop(made.close(1));
            drop(made);
            pair.world.run();
        });
    });
}

criterion_group!(benches, queue_pair);
criterion_main!(benches);
