//! A check on names: a stranger who knows Linux and load testing must understand each at once. Those that were not understood
//! have been replaced (ARCHITECTURE.md, "Names that may not come back"); whoever uses one of them again is told here.

use super::{assert_none, flags, helps, relative_path, root, rust_files};
use syn::visit::Visit;

/// Crates whose names are checked.
const CRATES: [&str; 11] = [
    "model",
    "load",
    "host",
    "analysis",
    "logs",
    "session",
    "distributed",
    "report",
    "lab",
    "evaluation",
    "webdyno",
];

/// No name of a module, type, function or flag has one of these words in it: say what is returned, done or measured.
const WORDS: &str = "ask asked asker asks befall befell brake braking careful complaint complaints dear desk fate
    foreseen hear heard hears hopeless learnt look looked outsider said say says shook stand standing stands stranger
    strangers struck tell tells tired told unheard untold voice whoever whose wish wishes";

const MODULES: &str = "abandoned ahead answer behind borrowed by_hand contradictions course elsewhere foreign hope in_turn
    inside led levels managed moment moved outside reach rising rooted shortage shown silence speed stamps told_by
    turned_away unchanged waiting watched watching wishes work world written";

const TYPES: &str = "Abandoned About Again Anyone Around Arrived Attempted Away Beside Binds Blinded Broke CalledOff Course
    Decided Did Effort Ended Fed Fills Foreign From GainHeld Habits HeadMemory Held Here Hope InTime Inside Late Law Led
    Lent Levels Lost Made Met Most Of Outside PutBack Rest Rests Rising Seat Seats Seeing Seen Shortage Shown Sight
    SignSeen Stamps Stated Teller Then There Trouble Undoing Until Usual Waiting Way Whose Why Word Words World Worth
    Wrong Wrongs";

const FUNCTIONS: &str = "abandon add_left_behind again_bytes agreeing all_at_once answered_to_visitor answers_well anywhere
    as_browsers_do as_many_pages at_a_rate at_once begun beside both_go_to brings_about bury_server by_hand bye
    cannot_be_looked_into certainty close_the_idlest close_what_nobody_keeps come cores_in_words could_be_local course
    crowd cut_by_the_kernel derive_of desk differ_by_nature doing elsewhere end_standing everywhere few_ports fitting
    forget_former from_outside give_back give_up_when give_up_when_hopeless given_up go_on goes_along gone
    guardian_has_done_it habits has_seats have_all_fallen_due having held_in_turn hides_its_work hope in_words introduce
    is_back is_elsewhere is_full_in_spite_of_it is_known_why is_last_word is_left_over_ours is_let_go is_like_a_host
    is_set_back keep_own kept_at_best kept_by_fat_processes lasting led_there let_go let_in listens_unasked
    make_room_for_the_new maker meant meanwhile mend mostly needs_the_original never_happened news nobody nobody_waits
    none_left not_quiet note_the_clock of_nobody of_strangers old_workers_finish one_less one_part one_round only_beginner
    others_wait outlived overworked owed own_tail para play prose put_back_first put_on put_together queues_behind
    raised_in_vain ran_out reap rest rising run_elsewhere run_there scribble seat seated see seeing seen seen_well
    shake shake_on shared_out shortage shook_hands shown silence slow_and_full spoils stands_still start_again strike
    sure surely_open takes_long talk the_rest there thin three together torn troubles try_again twice type_in undisturbed
    unrest unseen ways what_goes_together when who why_it_asks why_none word_of wrongs";

/// Old names of flags. They still work, hidden.
const FLAGS: [&str; 4] = ["--ablate", "--to-the-end", "--yes-reload", "--without-resources"];

fn has(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|one| one == name)
}

/// The words of a name, in lower case: of `LookUp`, `look_up` and `--look-up` they are `look` and `up`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter.is_uppercase() || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        words.last_mut().unwrap().extend(letter.to_lowercase().filter(|letter| letter.is_alphanumeric()));
    }
    words
}

fn is_banned(name: &str, list: &str) -> bool {
    has(list, name) || words(name).iter().any(|word| has(WORDS, word))
}

/// The declared names of a file that are banned. Tests are left out, and what implements a trait, whose names are its own.
#[derive(Default)]
struct Declared(Vec<String>);

impl Declared {
    fn add(&mut self, kind: &str, name: &syn::Ident, list: &str) {
        if is_banned(&name.to_string(), list) {
            self.0.push(format!("{kind} {name}"));
        }
    }
}

impl<'ast> Visit<'ast> for Declared {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !item.attrs.iter().any(|one| one.path().is_ident("cfg")) {
            self.add("mod", &item.ident, MODULES);
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add("struct", &item.ident, TYPES);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add("enum", &item.ident, TYPES);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add("type", &item.ident, TYPES);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add("trait", &item.ident, TYPES);
        syn::visit::visit_item_trait(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none() {
            syn::visit::visit_item_impl(self, item);
        }
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.add("fn", &signature.ident, FUNCTIONS);
    }
}

fn banned_in(text: &str) -> Vec<String> {
    let mut declared = Declared::default();
    declared.visit_file(&syn::parse_file(text).unwrap());
    declared.0
}

#[test]
fn names_that_were_not_understood_do_not_come_back() {
    let folders = CRATES.map(|name| root().join("crates").join(name).join("src"));
    let is_product = |path: &&std::path::PathBuf| {
        let is_of_tests = path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
        !is_of_tests && folders.iter().any(|folder| path.starts_with(folder))
    };
    let mut complaints = vec![];
    for path in rust_files().iter().filter(is_product) {
        let banned = banned_in(&std::fs::read_to_string(path).unwrap());
        complaints.extend(banned.iter().map(|name| format!("{}: {name}", relative_path(path))));
    }
    let helps = helps();
    let old = flags(&helps).filter(|flag| FLAGS.contains(flag) || is_banned(flag, ""));
    complaints.extend(old.map(|flag| format!("the help texts show {flag}")));
    assert_none(&complaints);
}

#[test]
fn banned_names_are_found_wherever_they_are_declared() {
    let text =
        "mod course; struct Told; enum LookUp {} type Way = u8; trait World { fn see(); fn ask_twice(); }
        fn tell_all() {} impl A { fn put_together() {} } impl World for A { fn ask_twice() {} }
        fn lookup() {} struct Essay; mod intelligence; #[cfg(test)] mod tests { fn told() {} }";
    let found = [
        "mod course",
        "struct Told",
        "enum LookUp",
        "type Way",
        "trait World",
        "fn see",
        "fn ask_twice",
        "fn tell_all",
        "fn put_together",
    ];
    assert_eq!(banned_in(text), found);
    assert!(is_banned("--tell-all", "") && !is_banned("--no-early-stop", ""));
}
