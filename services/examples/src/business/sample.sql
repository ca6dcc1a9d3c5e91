-- What every tenant begins with: a bakery whose traffic fell in the last seven days. Two causes lie in the figures:
-- the strongest recipe lost its search traffic, and nothing was published for three weeks.
INSERT INTO posts(tenant, title, category, kind, status, publish_at, content, tags, meta_description)
WITH sample(title, category, kind, status, days, content, tags, meta) AS (VALUES
  ('Sourdough starter in seven days', 'recipes', 'recipe', 'published', -190, 'Day 1: mix 50 g of rye flour with 50 g of water. Feed it every day. On day 7 it doubles within six hours.', '["sourdough","beginners"]', 'A starter from flour and water, day by day.'),
  ('Rye loaf with caraway', 'recipes', 'recipe', 'published', -160, 'A dense loaf for the week: 70 percent rye, one night in the fridge, 50 minutes in the oven.', '["rye"]', 'A rye loaf that stays fresh for a week.'),
  ('Cinnamon buns for a crowd', 'recipes', 'recipe', 'published', -131, 'Twenty buns from one dough. Roll it thin, spread butter to the edge, and let them rise side by side.', '["sweet"]', 'Twenty soft cinnamon buns from one dough.'),
  ('Focaccia without kneading', 'recipes', 'recipe', 'published', -96, 'Four folds instead of kneading. Dimple it with wet fingers and bake it hot.', '["quick"]', 'Focaccia with four folds and no kneading.'),
  ('Pumpkin bread for October', 'seasonal', 'seasonal', 'published', -75, 'Roast the pumpkin first: less water, more taste.', '["autumn"]', 'A moist pumpkin bread for autumn.'),
  ('Easter braid, step by step', 'seasonal', 'seasonal', 'published', -54, 'Three strands, one braid, egg wash twice.', '["easter"]', 'How to braid an Easter loaf.'),
  ('Baking for a garden party', 'seasonal', 'seasonal', 'published', -47, 'What can be baked the day before, and what cannot.', '["summer"]', 'A plan for a party table.'),
  ('How we shape a baguette', 'tutorials', 'tutorial', 'published', -120, 'Pre-shape, rest, fold, seal, roll. The seam goes down.', '["technique"]', 'Shaping a baguette in five moves.'),
  ('Reading a flour bag', 'tutorials', 'tutorial', 'published', -61, 'Ash, protein, strength: what the numbers say.', '["flour"]', 'What the numbers on flour mean.'),
  ('Oven steam at home', 'tutorials', 'tutorial', 'published', -40, 'A tray of lava stones and a cup of boiling water.', '["technique"]', 'Steam for a better crust.'),
  ('Spelt crackers', 'recipes', 'recipe', 'published', -33, 'Roll them as thin as paper. Salt at the end.', '["snack"]', 'Crisp crackers from spelt.'),
  ('Meet our night shift', 'news', 'story', 'published', -26, 'Four people, two ovens, six hundred loaves before dawn.', '["team"]', 'Who bakes while you sleep.'),
  ('Plum cake with crumble', 'seasonal', 'seasonal', 'published', -22, 'Plums cut side up, crumble from cold butter.', '["sweet","autumn"]', 'Plum cake as in grandmother''s kitchen.'),
  ('Gluten-free bread that works', 'recipes', 'recipe', 'draft', NULL, 'Buckwheat, psyllium, patience. Still to be tested twice.', '["gluten-free"]', NULL),
  ('A stollen calendar', 'seasonal', 'seasonal', 'draft', NULL, 'When to soak the fruit, when to bake, when to eat.', '["winter"]', NULL),
  ('Croissants in two days', 'recipes', 'recipe', 'scheduled', 5, 'Day one: dough and butter block. Day two: fold, rest, shape, bake.', '["sweet"]', 'Croissants with a plan for two days.'))
SELECT :tenant, title, category, kind, status, CASE WHEN days IS NOT NULL THEN date(:today, days || ' days') || 'T09:00' END,
  content, tags, meta FROM sample;
INSERT INTO views(tenant, post, day, source, views, comments, shares)
WITH RECURSIVE days(ago) AS (SELECT 1 UNION ALL SELECT ago + 1 FROM days WHERE ago < 60),
  sources(source, share) AS (VALUES ('search', 0.55), ('social', 0.25), ('direct', 0.20)),
  usual(kind, base) AS (VALUES ('recipe', 88), ('seasonal', 66), ('tutorial', 31), ('story', 22)),
  dated AS (SELECT n, title, kind, substr(publish_at, 1, 10) AS since, ago, date(:today, '-' || ago || ' days') AS day
    FROM posts, days WHERE tenant = :tenant AND status = 'published'),
  figures AS (SELECT n, day, source, round(base * share
    * CASE WHEN title LIKE 'Sourdough starter%' THEN 4 ELSE 1 END
    * CASE WHEN strftime('%w', day) IN ('0', '6') THEN 1.35 ELSE 1 END
    * CASE WHEN julianday(day) - julianday(since) < 7 THEN 1.8 ELSE 1 END
    * (0.92 + 0.01 * ((n * 31 + ago * 17 + length(title) * 7) % 17))
    * CASE WHEN title LIKE 'Sourdough starter%' AND source = 'search' AND ago <= 7 THEN 0.15 ELSE 1 END
    * CASE WHEN source = 'social' AND ago <= 7 THEN 0.6 ELSE 1 END) AS views
    FROM dated JOIN usual USING (kind), sources WHERE day >= since)
SELECT :tenant, n, day, source, CAST(views AS INTEGER), CAST(views / 55 AS INTEGER), CAST(views / 40 AS INTEGER) FROM figures;
INSERT INTO platforms(tenant, name, handle, is_connected, max_chars, timezone) VALUES
  (:tenant, 'instagram', '@kornblume.bakery', 1, 2200, 'Europe/Bratislava'),
  (:tenant, 'facebook', 'Kornblume Bakery', 1, 5000, 'Europe/Bratislava'),
  (:tenant, 'x', '@kornblume', 1, 280, 'Europe/Bratislava'),
  (:tenant, 'linkedin', NULL, 0, 3000, 'Europe/Bratislava'),
  (:tenant, 'pinterest', NULL, 0, 500, 'Europe/Bratislava');
INSERT INTO schedule(tenant, platform, text, publish_at, status, impressions, likes, comments, shares, clicks)
WITH RECURSIVE posts_of(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM posts_of WHERE k < 24)
SELECT :tenant, CASE k % 3 WHEN 0 THEN 'instagram' WHEN 1 THEN 'facebook' ELSE 'x' END,
  CASE k % 4 WHEN 0 THEN 'Warm from the oven: ' WHEN 1 THEN 'New on the blog: ' WHEN 2 THEN 'Behind the counter: ' ELSE 'This weekend: ' END
    || CASE k % 5 WHEN 0 THEN 'rye loaf' WHEN 1 THEN 'focaccia' WHEN 2 THEN 'plum cake' WHEN 3 THEN 'our night shift' ELSE 'cinnamon buns' END,
  date(:today, '-' || (k * 5 / 2) || ' days') || CASE k % 2 WHEN 0 THEN 'T07:30' ELSE 'T18:00' END, 'published',
  400 + k * 37 % 300 + CASE k % 3 WHEN 0 THEN 500 ELSE 0 END, 18 + k * 13 % 40 + CASE k % 2 WHEN 0 THEN 25 ELSE 0 END,
  k * 7 % 9, k * 5 % 11, 9 + k * 11 % 30 FROM posts_of;
INSERT INTO schedule(tenant, platform, text, publish_at, status) VALUES
  (:tenant, 'instagram', 'Croissants, layer by layer: a look ahead', date(:today, '3 days') || 'T07:30', 'scheduled'),
  (:tenant, 'facebook', 'Order your stollen until the 10th', date(:today, '6 days') || 'T18:00', 'scheduled'),
  (:tenant, 'x', 'Open on Sunday from 7 to 11', date(:today, '2 days') || 'T18:00', 'scheduled');
INSERT INTO settings(tenant, persona, greeting, temperature, model, language) VALUES
  (:tenant, 'A friendly baker who answers in two sentences', 'Hello! What may I bake for you?', 0.4, 'small', 'en');
INSERT INTO knowledge(tenant, kind, title, url, question, answer, added_on) VALUES
  (:tenant, 'url', 'Opening hours', 'https://kornblume.example/hours', NULL, NULL, date(:today, '-200 days')),
  (:tenant, 'pdf', 'Allergen list', 'https://kornblume.example/allergens.pdf', NULL, NULL, date(:today, '-180 days')),
  (:tenant, 'qa', 'Advance orders', NULL, 'Until when can I order for the next day?', 'Until 4 pm, by phone or here.', date(:today, '-90 days')),
  (:tenant, 'qa', 'Vouchers', NULL, 'Do you sell vouchers?', 'Yes, from 10 euros, in the shop.', date(:today, '-30 days'));
INSERT INTO conversations(tenant, customer, channel, topic, day, messages, is_resolved)
WITH RECURSIVE talks(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM talks WHERE k < 120)
SELECT :tenant, CASE k % 5 WHEN 0 THEN 'Jana Nová' WHEN 1 THEN 'Peter Malý' WHEN 2 THEN 'Eva Horská' WHEN 3 THEN 'Tomáš Kral' ELSE 'Ida Blum' END,
  CASE k % 3 WHEN 0 THEN 'whatsapp' ELSE 'website' END,
  CASE k % 6 WHEN 0 THEN 'allergens' WHEN 1 THEN 'opening hours' WHEN 2 THEN 'orders' WHEN 3 THEN 'delivery' WHEN 4 THEN 'orders' ELSE 'vouchers' END,
  date(:today, '-' || (k / 2 + 1) || ' days'), 3 + k * 7 % 9, CASE WHEN k % 6 = 3 OR k % 11 = 0 THEN 0 ELSE 1 END FROM talks;
INSERT INTO unanswered(tenant, question, asked, last_on) VALUES
  (:tenant, 'Do you deliver to the old town?', 14, date(:today, '-1 days')),
  (:tenant, 'Is there bread without yeast?', 9, date(:today, '-2 days')),
  (:tenant, 'Can I book a baking course?', 7, date(:today, '-4 days')),
  (:tenant, 'Do you have parking?', 2, date(:today, '-19 days'));
INSERT INTO leads(tenant, name, email, interest, channel, captured_on, status) VALUES
  (:tenant, 'Hotel Lipa', 'nakup@hotel-lipa.example', 'Breakfast rolls, 80 a day', 'website', date(:today, '-2 days'), 'new'),
  (:tenant, 'Marta Zelená', 'marta@zelena.example', 'Wedding cake in June', 'whatsapp', date(:today, '-5 days'), 'new'),
  (:tenant, 'Café Orion', 'office@orion.example', 'Croissants on weekends', 'website', date(:today, '-12 days'), 'contacted'),
  (:tenant, 'Ján Dlhý', 'jan@dlhy.example', 'Baking course', 'website', date(:today, '-23 days'), 'closed');
