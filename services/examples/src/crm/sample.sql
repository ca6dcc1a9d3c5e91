INSERT INTO contacts(tenant, name, company, email, phone, note) VALUES
  (:tenant, 'Jana Nováková', 'Stavby Nováková', 'jana@stavby-novakova.example', '+421 900 111 222', 'Volať doobeda'),
  (:tenant, 'Peter Kováč', 'Kováč a syn', 'peter@kovac.example', '+421 900 333 444', NULL),
  (:tenant, 'Peter Malý', 'Hotel Lipa', 'maly@hotel-lipa.example', NULL, 'Faktúry na nakup@hotel-lipa.example'),
  (:tenant, 'Zuzana Horská', 'Horská Architekti', 'zuzana@horska.example', '+421 900 555 666', NULL),
  (:tenant, 'Marek Biely', NULL, NULL, '+421 900 777 888', 'Nemá email');
INSERT INTO projects(tenant, contact, name, status, description, budget, due_date)
SELECT :tenant, n, 'Kuchyňa', 'open', 'Nová kuchynská linka', 8400, date(:today, '40 days') FROM contacts
WHERE tenant = :tenant AND name = 'Peter Kováč';
INSERT INTO projects(tenant, contact, name, status, description, budget, due_date)
SELECT :tenant, n, 'Vstupná hala', 'won', 'Recepcia a obklady', 21000, date(:today, '90 days') FROM contacts
WHERE tenant = :tenant AND name = 'Zuzana Horská';
INSERT INTO tasks(tenant, contact, project, title, due_date, status)
SELECT :tenant, contact, n, 'Zamerať kuchyňu', date(:today, '3 days'), 'open' FROM projects
WHERE tenant = :tenant AND name = 'Kuchyňa';
INSERT INTO tasks(tenant, contact, project, title, due_date, status)
SELECT :tenant, contact, n, 'Poslať vzorky obkladov', date(:today, '-2 days'), 'done' FROM projects
WHERE tenant = :tenant AND name = 'Vstupná hala';
