CREATE TABLE IF NOT EXISTS contacts(
  n INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, name TEXT NOT NULL, company TEXT, email TEXT, phone TEXT,
  note TEXT);
CREATE TABLE IF NOT EXISTS projects(
  n INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, contact INTEGER NOT NULL REFERENCES contacts,
  name TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN ('open', 'won', 'lost', 'done')), description TEXT,
  budget REAL, due_date TEXT);
CREATE TABLE IF NOT EXISTS tasks(
  n INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, contact INTEGER NOT NULL REFERENCES contacts,
  project INTEGER REFERENCES projects, title TEXT NOT NULL, due_date TEXT, note TEXT,
  status TEXT NOT NULL CHECK (status IN ('open', 'done')));
CREATE TABLE IF NOT EXISTS mails(
  n INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, kind TEXT NOT NULL CHECK (kind IN ('draft', 'sent')),
  recipient TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL, at TEXT NOT NULL);
