use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn generations_example_prints_the_generations() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let generation = kit.scheduled(at).await;
    let printed = kit.database.example("generations", &[&at.project.to_string()]);
    assert_eq!(printed, format!("1.1 scheduled 1000 bytes {}\n", generation.offsite_key));
}
