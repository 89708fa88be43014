use crate::bench::*;
use crate::story::*;

fn smoke(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.add(&[tenant("red", Some(4)), node("n1", 8), submit(1, "red", 2), submit_array(2, "red", 3)]);
    book.add(&[placed(job(1), 1, "n1", &[0, 1]), started(job(1), 1, "n1")]);
    book.add(&[done(job(1), 1)]);
    println!(
        "{:#?}",
        book.store.tables.jobs(&Default::default(), &muster_store::queries::Page::first(10)).unwrap()
    );
    println!("{:#?}", book.store.tables.job(job(1)).unwrap());
    println!("{:#?}", book.replay(0).unwrap().len());
}
#[test]
fn smoke_sqlite() {
    smoke(&SqliteBench::new());
}
#[test]
fn smoke_postgres() {
    smoke(&PostgresBench::new().unwrap());
}
