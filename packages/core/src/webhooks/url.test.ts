import { describe, expect, test } from "vitest";
import { requireWebhookUrl } from "./url.ts";

describe("the address of a webhook", () => {
  test.each([
    "https://hooks.example.com/a?b=c",
    "http://localhost:1/",
    "http://127.0.0.1/",
    "http://[::1]:8/",
    "http://10.1.2.3/",
    "http://[fd12::1]/",
  ])("may be %s", (url) => {
    expect(() => requireWebhookUrl(url)).not.toThrow();
  });

  test.each([
    "http://hooks.example.com/",
    "http://8.8.8.8/",
    "http://localhost.example.com/",
    "http://169.254.169.254/",
    "http://[2606:4700::1]/",
    "ftp://127.0.0.1/",
    "file:///etc/passwd",
    "hooks",
    "",
  ])("may not be '%s'", (url) => {
    expect(() => requireWebhookUrl(url)).toThrow(
      expect.objectContaining({ code: "invalid_request", details: { param: "url" } }),
    );
  });
});
