import { describe, expect, test } from "vitest";
import { artifactKind, artifactPlace, artifactUrl } from "./artifacts.ts";
import { detailOf } from "./client.ts";
import { isThreadId } from "./threads.ts";

describe("artifacts", () => {
  test("are places below the mount only", () => {
    expect(artifactPlace("/mnt/user-data/outputs/a%20b.md#L12-L20")).toEqual({ path: "/mnt/user-data/outputs/a b.md", line: 12 });
    expect(artifactPlace("sandbox:/mnt/user-data/outputs/a.md")?.path).toBe("/mnt/user-data/outputs/a.md");
    expect(artifactPlace("/mnt/user-data/../../etc/passwd")).toBeNull();
    expect(artifactPlace("/mnt/user-data/%2e%2e/x")).toBeNull();
    expect(artifactPlace("/etc/passwd")).toBeNull();
    expect(artifactPlace("https://example.com/mnt/user-data/x")).toBeNull();
  });

  test("have addresses in which no name can break out of its segment", () => {
    expect(artifactUrl("t1", "/mnt/user-data/outputs/a?b#c/ü.md", true)).toBe(
      "/api/threads/t1/artifacts/mnt/user-data/outputs/a%3Fb%23c/%C3%BC.md?download=true",
    );
  });

  test("show as what their name says, text where it says nothing", () => {
    const kinds = ["a.md", "b.HTML", "c.svg", "d.zip", "Makefile", "e.py", "f.tar.gz"].map(artifactKind);

    expect(kinds).toEqual(["markdown", "html", "image", "binary", "text", "text", "binary"]);
  });
});

test("an error's detail is read in each of its shapes", () => {
  expect(detailOf({ detail: "no such thread" })).toBe("no such thread");
  expect(detailOf({ detail: { code: "x", message: "not allowed" } })).toBe("not allowed");
  expect(detailOf({ detail: [{ loc: ["body"], msg: "field required" }] })).toBe("field required");
  expect(detailOf("<html>")).toBeNull();
});

test("only well-formed ids name a thread", () => {
  expect(["abc-1_2", "", "../x", "a b", "x".repeat(65)].map(isThreadId)).toEqual([true, false, false, false, false]);
});
