/** One door to the gateway: JSON in, JSON out, and errors that say what went wrong. */

/** The gateway refused, or could not be reached (`status` 0). */
export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

/** Send a request and return the raw response, or throw an `ApiError`. */
export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  const token = csrfToken();
  if (token && init.method && init.method !== "GET") headers.set("X-CSRF-Token", token);
  let response: Response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...init, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (!response.ok) throw new ApiError(response.status, await explain(response));
  return response;
}

/** Send `body` (if any) as JSON and return the parsed answer. */
export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const response = await send(path, {
    method,
    signal: signal ?? null,
    ...(body === undefined ? {} : { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return (text ? JSON.parse(text) : null) as T;
}

/** Return what the `detail` of an error body says, whichever of its three shapes it has. */
export function detailOf(body: unknown): string | null {
  if (typeof body !== "object" || body === null || !("detail" in body)) return null;
  const { detail } = body as { detail: unknown };
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) return detail.map((item) => messageOf(item, "msg")).join("; ");
  return messageOf(detail, "message");
}

/** The header that proves a request comes from this page, where the server asks for it. */
export function csrfToken(): string | null {
  if (typeof document === "undefined") return null;
  const match = /(?:^|;\s*)csrf_token=([^;]+)/.exec(document.cookie);
  return match?.[1] ? decodeURIComponent(match[1]) : null;
}

async function explain(response: Response): Promise<string> {
  const text = await response.text().catch(() => "");
  try {
    return detailOf(JSON.parse(text)) ?? `HTTP ${response.status}`;
  } catch {
    return `HTTP ${response.status} ${response.statusText}`.trim();
  }
}

function messageOf(value: unknown, key: string): string {
  if (typeof value === "object" && value !== null && key in value) {
    return String((value as Record<string, unknown>)[key]);
  }
  return JSON.stringify(value);
}
