/** An SMTP server for the suite over all schemes. */
import { startSmtpStub } from "../smtp-stub.ts";
import { localCertificate } from "../tls-pair.ts";
import type { SchemeFixture } from "./fixture.ts";

const password = "sentinel-of-the-mail-account";

export const mailFixture: SchemeFixture = {
  tool: "welcome",
  arguments: { to: "ann@example.com", subject: "Welcome", body: "Glad that you are here." },
  badArguments: { to: 7 },
  effect: "write",
  // The server waits a moment for who talks too soon, then come encryption and login.
  reachedWithinMs: 1_000,
  // What an SMTP server answers is a line for each recipient.
  hugeIs: "outcome_unknown",
  async start() {
    const stub = await startSmtpStub({ user: { name: "shop", password } });
    const config = {
      host: "127.0.0.1",
      port: stub.port,
      tls: { ca: localCertificate },
      username: "shop",
      password,
      from: "shop@example.com",
      profiles: { welcome: { description: "Greets a new customer." } },
    };
    return {
      config,
      deadConfig: { ...config, port: 9 },
      secrets: [password],
      calls: () => stub.begun,
      behave: (mood) => {
        stub.onData = mood === "broken" ? "drop" : mood === "well" ? "take" : mood;
      },
      close: () => stub.close(),
    };
  },
};
