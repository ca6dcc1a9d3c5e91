# Sentences that the fleet itself says to people, in Slovak.

ask-back = Aby som mohol pokračovať, potrebujem: **{ $what }**. Môžete mi to upresniť?

partial-answer = **Čiastočná odpoveď:** { $why }.
before-answer = { $why }, skôr než vznikla konečná odpoveď
most-iterations = dosiahol sa maximálny počet krokov
same-calls = volanie `{ $call }` sa zopakovalo, hoci už bolo urobené
same-tool = nástroj `{ $tool }` sa volal stále dookola a iná cesta sa nenašla
nothing-found = Žiadny nástroj nevrátil nič užitočné.
last-thought = Posledná myšlienka bola: { $thought }

difficulties = Mám technické ťažkosti. Skúste to, prosím, znova o niekoľko minút.

not-permitted = Na toto nemáte oprávnenie. Obráťte sa na správcu pracovného priestoru.
rate-limited = Dosiahli ste svoj limit. Skúste to, prosím, neskôr.
not-fetched = Tieto údaje sa mi teraz nepodarilo získať.
not-done = Teraz sa mi to nepodarilo urobiť a pred ďalším pokusom by sa na to mal niekto pozrieť.
