/** A real SMTP server (npm `smtp-server`) that keeps what it was given and refuses as told. */
import type { AddressInfo } from "node:net";
import { simpleParser, type ParsedMail } from "mailparser";
import { SMTPServer, type SMTPServerOptions } from "smtp-server";
import { localCertificate, localKey } from "./tls-pair.ts";

export interface ReceivedMail {
  readonly from: string;
  readonly to: readonly string[];
  readonly raw: Buffer;
  readonly parsed: ParsedMail;
}

/**
 * `take`: says 250. `silent`: reads the mail and says nothing. `drop`: breaks the connection in the middle
 * of the mail. A number: that status after the mail.
 */
export type DataMood = "take" | "silent" | "drop" | "huge" | number;

export interface SmtpStub {
  readonly port: number;
  readonly mails: readonly ReceivedMail[];
  /** Mails of which something has arrived, taken or not. */
  readonly begun: number;
  /** Logins that were tried. */
  readonly logins: readonly { readonly username: string | undefined; readonly secure: boolean }[];
  /** Status by recipient, from RCPT on; others are taken. */
  readonly refuses: Map<string, number>;
  onData: DataMood;
  close(): Promise<void>;
}

export interface SmtpStubOptions extends SMTPServerOptions {
  readonly user?: { readonly name: string; readonly password: string };
}

export async function startSmtpStub({ user, ...options }: SmtpStubOptions = {}): Promise<SmtpStub> {
  const mails: ReceivedMail[] = [];
  const logins: { readonly username: string | undefined; readonly secure: boolean }[] = [];
  const stub = {
    port: 0,
    mails,
    begun: 0,
    logins,
    refuses: new Map<string, number>(),
    onData: "take" as DataMood,
    async close() {
      await new Promise<void>((done) => {
        server.close(() => done());
      });
    },
  };
  const server = new SMTPServer({
    key: localKey,
    cert: localCertificate,
    closeTimeout: 100,
    disableReverseLookup: true,
    ...(user === undefined ? { authOptional: true } : {}),
    ...options,
    onAuth({ username, password }, { secure }, done) {
      logins.push({ username, secure });
      if (username === user?.name && password === user?.password) done(null, { user: username });
      else done(refusal(535, "Authentication credentials invalid"));
    },
    onMailFrom({ address }, _session, done) {
      const code = stub.refuses.get(address);
      done(code === undefined ? null : refusal(code, "Sender not known here"));
    },
    onRcptTo({ address }, _session, done) {
      const code = stub.refuses.get(address);
      done(code === undefined ? null : refusal(code, code < 500 ? "Greylisted, come back" : "No such user here"));
    },
    onData(stream, session, done) {
      const mood = stub.onData;
      stream.once("data", () => {
        stub.begun += 1;
        if (mood === "drop") dropAll();
      });
      if (mood === "drop") return;
      const parts: Buffer[] = [];
      stream.on("data", (part: Buffer) => void parts.push(part));
      stream.on("end", () => {
        if (mood === "silent") return;
        if (mood === "huge") {
          done(null, "x".repeat(10_000_000));
          return;
        }
        if (typeof mood === "number") {
          done(refusal(mood, mood < 500 ? "Try again later" : "Content refused"));
          return;
        }
        const raw = Buffer.concat(parts);
        const { mailFrom, rcptTo } = session.envelope;
        void simpleParser(raw, { skipTextToHtml: true }).then((parsed) => {
          mails.push({
            from: mailFrom === false ? "" : mailFrom.address,
            to: rcptTo.map(({ address }) => address),
            raw,
            parsed,
          });
          done(null, "queued as 4711");
        });
      });
    },
  });
  const sockets = new Set<{ destroy(): void }>();
  server.server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  function dropAll(): void {
    for (const socket of sockets) socket.destroy();
  }
  server.on("error", () => undefined);
  await new Promise<void>((done) => void server.listen(0, "127.0.0.1", () => done()));
  stub.port = (server.server.address() as AddressInfo).port;
  return stub;
}

function refusal(responseCode: number, message: string): Error {
  return Object.assign(new Error(message), { responseCode });
}
