// Calls each method of the public JS client once; prints which failed, and which were not called.
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: process.argv[2], apiKey: null, callerOptions: { maxRetries: 0 } });
const input = { messages: [{ type: "human", content: "go" }] };
const schedule = "0 3 * * *";
const ids = {};

async function drained(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

async function first(stream) {
  for await (const item of stream) return item;
  throw new Error("the stream was empty");
}

async function streamed() {
  const thread = client.threads.stream("t1", { assistantId: "lead_agent" });
  await thread.run.start({ input });
  await thread.output;
  await thread.close();
}

async function cancelled() {
  const run = await client.runs.create("t2", "lead_agent", { input, afterSeconds: 60, ifNotExists: "create" });
  await client.runs.cancel("t2", run.run_id, true);
}

const calls = {
  "assistants.create": () => client.assistants.create({ graphId: "lead_agent", assistantId: "a1" }),
  "assistants.get": () => client.assistants.get("a1"),
  "assistants.getGraph": () => client.assistants.getGraph("a1"),
  "assistants.getSchemas": () => client.assistants.getSchemas("a1"),
  "assistants.getSubgraphs": () => client.assistants.getSubgraphs("a1"),
  "assistants.update": () => client.assistants.update("a1", { name: "A" }),
  "assistants.getVersions": () => client.assistants.getVersions("a1"),
  "assistants.setLatest": () => client.assistants.setLatest("a1", 1),
  "assistants.search": () => client.assistants.search(),
  "assistants.count": () => client.assistants.count(),
  "assistants.delete": () => client.assistants.delete("a1"),
  "threads.create": () => client.threads.create({ threadId: "t1" }),
  "threads.get": () => client.threads.get("t1"),
  "threads.update": () => client.threads.update("t1", { metadata: { a: 1 } }),
  "threads.stream": streamed,
  "threads.joinStream": () => first(client.threads.joinStream("t1", { lastEventId: "0-0", streamMode: ["run_modes"] })),
  "threads.getState": () => client.threads.getState("t1"),
  "threads.updateState": () => client.threads.updateState("t1", { values: { title: "T" } }),
  "threads.getHistory": () => client.threads.getHistory("t1"),
  "threads.search": () => client.threads.search(),
  "threads.count": () => client.threads.count(),
  "threads.copy": () => client.threads.copy("t1"),
  "threads.prune": () => client.threads.prune(["t1"], { strategy: "keep_latest" }),
  "runs.create": async () => {
    ids.run = (await client.runs.create("t1", "lead_agent", { input })).run_id;
  },
  "runs.join": () => client.runs.join("t1", ids.run),
  "runs.joinStream": () => drained(client.runs.joinStream("t1", ids.run)),
  "runs.get": () => client.runs.get("t1", ids.run),
  "runs.list": () => client.runs.list("t1"),
  "runs.stream": () => drained(client.runs.stream("t1", "lead_agent", { input })),
  "runs.wait": () => client.runs.wait("t1", "lead_agent", { input }),
  "runs.createBatch": () => client.runs.createBatch([{ assistantId: "lead_agent", input }]),
  "runs.cancel": cancelled,
  "runs.cancelMany": () => client.runs.cancelMany({ status: "all" }),
  "runs.delete": () => client.runs.delete("t1", ids.run),
  "crons.create": async () => {
    ids.cron = (await client.crons.create("lead_agent", { schedule, input })).cron_id;
  },
  "crons.createForThread": () => client.crons.createForThread("t1", "lead_agent", { schedule, input }),
  "crons.update": () => client.crons.update(ids.cron, { schedule: "0 4 * * *", endTime: new Date(2100, 1).toISOString() }),
  "crons.search": () => client.crons.search(),
  "crons.count": () => client.crons.count(),
  "crons.delete": () => client.crons.delete(ids.cron),
  "store.putItem": () => client.store.putItem(["n"], "k", { v: 1 }),
  "store.getItem": () => client.store.getItem(["n"], "k"),
  "store.searchItems": () => client.store.searchItems(["n"]),
  "store.listNamespaces": () => client.store.listNamespaces(),
  "store.deleteItem": () => client.store.deleteItem(["n"], "k"),
  "threads.delete": () => client.threads.delete("t1"),
};

const failed = {};
for (const [name, call] of Object.entries(calls)) {
  try {
    await call();
  } catch (error) {
    failed[name] = String(error);
  }
}
const all = ["assistants", "threads", "runs", "crons", "store"].flatMap((part) =>
  Object.getOwnPropertyNames(Object.getPrototypeOf(client[part]))
    .filter((name) => name !== "constructor" && typeof client[part][name] === "function")
    .map((name) => `${part}.${name}`),
);
console.log(JSON.stringify({ failed, missing: all.filter((name) => !(name in calls)) }));
process.exit(0);
