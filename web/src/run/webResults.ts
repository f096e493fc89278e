/** The pages and images in the result of a web search, as the server's tools return them. */

export interface WebResult {
  readonly title: string;
  readonly url: string;
  readonly content: string;
}

/** Return what a search found; null for other tools, and for a result that is no list, such as an error. */
export function webResults(tool: string, result: string): readonly WebResult[] | null {
  if (tool !== "web_search" && tool !== "image_search") return null;
  const found = parsed(result);
  const list = tool === "web_search" ? found : field(found, "results");
  if (!Array.isArray(list)) return null;
  return list.map((item: unknown) => ({
    title: text(item, "title"),
    url: text(item, "url") || text(item, "image_url"),
    content: text(item, "content") || text(item, "source_url"),
  })).filter((item) => item.url !== "");
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function field(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

function text(value: unknown, name: string): string {
  const found = field(value, name);
  return typeof found === "string" ? found : "";
}
