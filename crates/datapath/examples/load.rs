fn main() {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let mut d = datapath::Datapath::open(&datapath::Options::new(dir)).unwrap();
    println!("adopted {}", d.adopted());
    println!("{:?}", d.activate().unwrap());
}
