// Asks Restate for runs, as run.py says: restate_caller.cjs PORT
"use strict";

const http = require("node:http");
const readline = require("node:readline");

const port = Number(process.argv[2]);
const agent = new http.Agent({ keepAlive: true, maxSockets: 64 });
const BODIES = { steps: { question: "steps=20", steps: 20 }, supervisor: {} };
const ANSWERS = { steps: "it is done", supervisor: "4 answers: it is done" };
const PATHS = { steps: "/react/run", supervisor: "/supervisor/run" };

const run = (work) =>
  new Promise((resolve, reject) => {
    const began = performance.now();
    const headers = { "content-type": "application/json" };
    const request = http.request({ host: "127.0.0.1", port, path: PATHS[work], method: "POST", headers, agent }, (response) => {
      let body = "";
      response.on("data", (chunk) => (body += chunk));
      response.on("end", () => {
        const well = response.statusCode === 200 && JSON.parse(body) === ANSWERS[work];
        well ? resolve((performance.now() - began) / 1000) : reject(new Error(`${response.statusCode} ${body}`));
      });
    });
    request.on("error", reject);
    request.end(JSON.stringify(BODIES[work]));
  });

const measure = async ({ work, sessions, seconds, runs }) => {
  const began = performance.now();
  const times = [];
  let left = runs;
  const more = () => (runs === undefined ? performance.now() - began < seconds * 1000 : left-- > 0);
  const session = async () => {
    while (more()) times.push(await run(work));
  };
  await Promise.all(Array.from({ length: sessions }, session));
  return { took: (performance.now() - began) / 1000, times };
};

const main = async () => {
  console.log(JSON.stringify({ ready: true }));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await measure(JSON.parse(line))));
  }
  process.exit(0);
};

main();
