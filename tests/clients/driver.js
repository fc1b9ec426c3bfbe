// Plays pages on a real AG-UI client: one command a line comes in, and what the client
// tells its page goes out, one line each. Both are JSON; the first word after the
// program's name is the package that holds the client.
//
//   {"page": "a", "load": {url, headers, threadId}}   a new client that has nothing
//   {"page": "a", "run": {say?, tools?, answers?, resume?}}
//   {"page": "a", "leave": true}                      the reader goes away
//
// A run gives {"page", "event"} for each event and {"page", "done"} at its end. `answers`
// are checked and put together by the client, `resume` goes out as it is.

import readline from "node:readline";

const { HttpAgent, buildResumeArray, randomUUID } = await import(process.argv[2]);
const pages = new Map();

const write = (line) => process.stdout.write(JSON.stringify(line) + "\n");

// Whatever a client finds odd about a stream it says here.
for (const level of ["warn", "error"]) {
  console[level] = (...words) => write({ complaint: words.map(String).join(" ") });
}

async function run(page, agent, { say, tools, answers, resume }) {
  let failed = null;
  try {
    if (say) {
      agent.addMessage({ id: randomUUID(), role: "user", content: say });
    }
    if (answers) {
      resume = buildResumeArray(agent.pendingInterrupts, answers);
    }
    await agent.runAgent({ tools, resume }, {
      onEvent: ({ event }) => write({ page, event }),
    });
  } catch (error) {
    failed = error.message;
  }
  const { messages, pendingInterrupts: pending } = agent;
  write({ page, done: { failed, messages, pending } });
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { page, load, run: wanted, leave } = JSON.parse(line);
  if (load) {
    pages.set(page, new HttpAgent(load));
  } else if (wanted) {
    run(page, pages.get(page), wanted);
  } else if (leave) {
    pages.get(page).abortRun();
  }
}
