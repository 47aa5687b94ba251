"""Some 290 facts: kind, subject, value."""

CAPITALS = """France Paris;Germany Berlin;Italy Rome;Spain Madrid;Portugal Lisbon;Austria Vienna;Poland Warsaw;Greece Athens;
Sweden Stockholm;Norway Oslo;Denmark Copenhagen;Finland Helsinki;Iceland Reykjavik;Ireland Dublin;Belgium Brussels;
Hungary Budapest;Romania Bucharest;Bulgaria Sofia;Croatia Zagreb;Serbia Belgrade;Slovenia Ljubljana;Slovakia Bratislava;
Ukraine Kyiv;Estonia Tallinn;Latvia Riga;Lithuania Vilnius;Turkey Ankara;Egypt Cairo;Morocco Rabat;Tunisia Tunis;
Kenya Nairobi;Ghana Accra;Nigeria Abuja;Ethiopia Addis_Ababa;Senegal Dakar;Japan Tokyo;China Beijing;India New_Delhi;
Thailand Bangkok;Vietnam Hanoi;Indonesia Jakarta;Mongolia Ulaanbaatar;Nepal Kathmandu;Iran Tehran;Iraq Baghdad;
Jordan Amman;Lebanon Beirut;Canada Ottawa;Mexico Mexico_City;Cuba Havana;Jamaica Kingston;Brazil Brasilia;
Argentina Buenos_Aires;Chile Santiago;Peru Lima;Colombia Bogota;Ecuador Quito;Uruguay Montevideo;Paraguay Asuncion;
Venezuela Caracas;Australia Canberra;New_Zealand Wellington;South_Korea Seoul;Russia Moscow;Switzerland Bern;
Netherlands Amsterdam;Albania Tirana;Cyprus Nicosia;Malta Valletta;Qatar Doha"""

ELEMENTS = """hydrogen H 1;helium He 2;lithium Li 3;beryllium Be 4;boron B 5;carbon C 6;nitrogen N 7;oxygen O 8;fluorine F 9;
neon Ne 10;sodium Na 11;magnesium Mg 12;aluminium Al 13;silicon Si 14;phosphorus P 15;sulfur S 16;chlorine Cl 17;
argon Ar 18;potassium K 19;calcium Ca 20;iron Fe 26;nickel Ni 28;copper Cu 29;zinc Zn 30;silver Ag 47;tin Sn 50;
iodine I 53;gold Au 79;mercury Hg 80;lead Pb 82;uranium U 92"""

PLANETS = ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]

YOUNG = """cat kitten;dog puppy;cow calf;horse foal;sheep lamb;goat kid;pig piglet;duck duckling;goose gosling;hen chick;
bear cub;deer fawn;swan cygnet;frog tadpole;kangaroo joey;owl owlet"""

NUMBERS = """days_in_a_week 7;months_in_a_year 12;hours_in_a_day 24;minutes_in_an_hour 60;seconds_in_a_minute 60;
sides_of_a_triangle 3;sides_of_a_square 4;sides_of_a_pentagon 5;sides_of_a_hexagon 6;sides_of_an_octagon 8;
legs_of_a_spider 8;legs_of_an_insect 6;strings_of_a_violin 4;players_of_a_football_team 11;letters_of_the_English_alphabet 26;
planets_of_the_solar_system 8;degrees_in_a_circle 360;years_in_a_century 100;bits_in_a_byte 8;colours_of_a_rainbow 7;
keys_of_a_piano 88;squares_of_a_chess_board 64;continents_of_the_Earth 7"""


def rows(table):
    return [[w.replace("_", " ") for w in line.split()]
            for line in table.replace("\n", "").split(";")]


def all_facts():
    """(kind, subject, value)"""
    out = []
    for country, city in rows(CAPITALS):
        out += [("capital", country, city), ("country", city, country)]
    for name, symbol, number in rows(ELEMENTS):
        out += [("symbol", name, symbol), ("element", symbol, name), ("number", name, number)]
    for place, planet in zip(ORDINALS, PLANETS):
        out += [("planet", place, planet), ("place", planet, place)]
    out += [("young", animal, young) for animal, young in rows(YOUNG)]
    out += [("count", what, number) for what, number in rows(NUMBERS)]
    return out


KNOWN_COUNTRIES = {c for c, _ in rows(CAPITALS)}
