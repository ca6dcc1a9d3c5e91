// The agents of the Restate peer, as a service that Restate's server calls. A step is one `ctx.run`, whose result is
// in the server's log, synced to disk, before the next step begins. Prints its port.
"use strict";

// Absent before Node 22, and the SDK uses it.
Promise.withResolvers ??= () => {
  const all = {};
  all.promise = new Promise((resolve, reject) => Object.assign(all, { resolve, reject }));
  return all;
};

const http2 = require("node:http2");
const restate = require("@restatedev/restate-sdk");

// A model and a tool that answer at once: agent.py has the same.
const model = (history, steps) =>
  history.length + 1 < steps
    ? `Thought: go on\nAction: noop\nArgs: ${JSON.stringify({ query: `page ${history.length}` })}`
    : "Thought: done\nFinal Answer: it is done";
const tool = () => "ok";
const step = (history, steps) => {
  const [thought, said, rest] = model(history, steps).split("\n").map((line) => line.slice(line.indexOf(": ") + 2));
  if (rest === undefined) return { thought, answer: said };
  const args = JSON.parse(rest);
  return { thought, action: said, arguments: args, observation: tool(args) };
};

const react = restate.service({
  name: "react",
  handlers: {
    run: async (ctx, { steps }) => {
      const history = [];
      for (;;) {
        const done = await ctx.run("step", () => step(history, steps));
        if ("answer" in done) return done.answer;
        history.push(done);
      }
    },
  },
});

const supervisor = restate.service({
  name: "supervisor",
  handlers: {
    run: async (ctx) => {
      const goals = await ctx.run("decompose", () => [0, 1, 2, 3].map((n) => `goal ${n}`));
      const subagents = goals.map((goal) => ctx.serviceClient(react).run({ question: goal, steps: 2 }));
      const answers = await restate.RestatePromise.all(subagents);
      return await ctx.run("synthesise", () => `${answers.length} answers: ${answers[0]}`);
    },
  },
});

const server = http2.createServer(restate.createEndpointHandler({ services: [react, supervisor] }));
server.listen(0, "127.0.0.1", () => console.log(JSON.stringify({ port: server.address().port })));
