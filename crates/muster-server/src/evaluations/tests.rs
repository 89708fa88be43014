use super::*;

fn limits() -> EvaluationLimits {
    EvaluationLimits {
        running_max: 2,
        open_max: 5,
        open_per_caller_max: 3,
        queue_timeout: Duration::from_secs(60),
        debt_max: Duration::from_secs(60),
    }
}

/// Tasks that each acquire a permit and drop it.
fn spawn_evaluations(
    evaluations: &Arc<EvaluationLimiter>,
    caller: &'static str,
    times: usize,
) -> Vec<tokio::task::JoinHandle<()>> {
    let one = || {
        let evaluations = evaluations.clone();
        tokio::spawn(async move { drop(evaluations.acquire(caller).await.unwrap_or_else(|_| panic!("refused"))) })
    };
    (0..times).map(|_| one()).collect()
}

#[tokio::test]
async fn a_caller_above_its_limit_is_refused_and_others_are_not() {
    let evaluations = Arc::new(EvaluationLimiter::new(limits()));
    let held = (evaluations.acquire("a").await.ok(), evaluations.acquire("a").await.ok());
    let waiting = spawn_evaluations(&evaluations, "a", 1);
    tokio::task::yield_now().await;
    let refusal = evaluations.acquire("a").await.err();
    assert_eq!(refusal, Some(EvaluationRefusal::CallerOpenLimit { open: 3 }), "two run, one waits");
    let others = spawn_evaluations(&evaluations, "b", 2);
    tokio::task::yield_now().await;
    assert_eq!(evaluations.acquire("c").await.err(), Some(EvaluationRefusal::ServerBusy), "five are open");
    drop(held);
    for one in waiting.into_iter().chain(others) {
        one.await.unwrap();
    }
    let counts = evaluations.counts();
    assert_eq!((counts.evaluations, counts.running, counts.running_max, counts.refused), (5, 0, 2, 2));
}

#[tokio::test]
async fn a_caller_that_used_up_its_evaluation_time_is_refused() {
    let evaluations = EvaluationLimiter::new(EvaluationLimits { debt_max: Duration::ZERO, ..limits() });
    let held = evaluations.acquire("a").await.ok();
    lock(&evaluations.callers).usage.get_mut("a").unwrap().debt = Duration::from_secs(60);
    drop(held);
    let refusal = evaluations.acquire("a").await.err().unwrap();
    assert!(matches!(refusal, EvaluationRefusal::CallerTimeLimit { allowed_s: 0, .. }), "{refusal:?}");
    assert_eq!(refusal.code(), "too-many-evaluations");
    assert!(evaluations.acquire("b").await.is_ok());
}
