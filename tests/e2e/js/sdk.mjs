// Walks through the public JS client, unmodified; prints what it saw as one line of JSON.
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: process.argv[2], apiKey: null });
const ask = (text) => ({ messages: [{ type: "human", content: text }] });
const modes = ["values", "messages-tuple", "updates", "custom"];

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

const seen = {};
const thread = await client.threads.create({ metadata: { from: "js" } });
const id = thread.thread_id;
seen.thread = (await client.threads.get(id)).thread_id === id;

let runId;
const events = await collect(
  client.runs.stream(id, "lead_agent", {
    input: ask("stream please"),
    streamMode: modes,
    context: { subagent_enabled: false },
    onRunCreated: (run) => (runId = run.run_id),
  }),
);
seen.runId = runId !== undefined;
seen.kinds = [...new Set(events.map((event) => event.event))];
seen.text = events
  .filter((event) => event.event === "messages" && event.data[0].type === "AIMessageChunk")
  .map((event) => event.data[0].content)
  .join("");
const streamedId = events.findLast((event) => event.event === "messages").data[0].id;
const values = events.findLast((event) => event.event === "values").data;
seen.sameIds = values.messages.at(-1).id === streamedId;

const waited = await client.runs.wait(id, "lead_agent", { input: ask("wait please") });
seen.waited = waited.messages.at(-1).content;

const created = await client.runs.create(id, "lead_agent", { input: ask("join please"), streamMode: modes });
const joined = await client.runs.join(id, created.run_id);
seen.joined = joined.messages.at(-1).content;

const all = await collect(client.runs.joinStream(id, created.run_id, { lastEventId: "-1", streamMode: modes }));
const middle = Math.floor(all.length / 2);
const rest = await collect(
  client.runs.joinStream(id, created.run_id, { lastEventId: all[middle].id, streamMode: modes }),
);
seen.rejoined = JSON.stringify(rest.map((event) => event.id)) === JSON.stringify(all.slice(middle + 1).map((event) => event.id));

const slow = await client.runs.create(id, "lead_agent", { input: ask("slow please") });
await client.runs.cancel(id, slow.run_id, true);
seen.cancelled = (await client.runs.get(id, slow.run_id)).status;
seen.runs = (await client.runs.list(id)).length;

const state = await client.threads.getState(id);
seen.state = state.values.messages.length;
seen.checkpoint = state.checkpoint.checkpoint_id !== undefined && state.checkpoint.thread_id === id;
const history = await client.threads.getHistory(id, { limit: 2 });
seen.history = history.length;
seen.historyIds = history[0].values.messages.map((message) => message.id).join() === state.values.messages.map((message) => message.id).join();
await client.threads.update(id, { metadata: { star: true } });
seen.found = (await client.threads.search({ metadata: { star: true } })).map((found) => found.thread_id).join() === id;
await client.threads.updateState(id, { values: { title: "renamed" } });
seen.title = (await client.threads.search({ limit: 1 }))[0].values.title;
seen.assistants = (await client.assistants.search()).map((assistant) => assistant.assistant_id);
await client.threads.delete(id);
seen.gone = await client.threads.get(id).then(() => false, (error) => String(error).includes("404"));
console.log(JSON.stringify(seen));
