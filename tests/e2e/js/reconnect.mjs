// Streams one run through a connection that breaks; prints the ids of its events, and of those read again.
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: process.argv[2], apiKey: null });
const thread = (await client.threads.create()).thread_id;
const input = { messages: [{ type: "human", content: "tell" }] };
const options = { input, onDisconnect: "continue", streamMode: "values" };

const ids = [];
let run;
for await (const event of client.runs.stream(thread, "lead_agent", options)) {
  if (event.event === "metadata") run = event.data.run_id;
  ids.push(event.id);
}
const again = [];
for await (const event of client.runs.joinStream(thread, run)) again.push(event.id);
console.log(JSON.stringify({ ids, again }));
