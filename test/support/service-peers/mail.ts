/** An SMTP server with STARTTLS and login, which takes some recipients and refuses others. */
import { startSmtpStub } from "../smtp-stub.ts";
import { localCertificate } from "../tls-pair.ts";
import type { ServicePeer } from "./peer.ts";

const password = "the-password-of-the-mail-peer";

export const mailPeers: readonly ServicePeer[] = [
  {
    scheme: "mail",
    name: "an SMTP server with STARTTLS",
    async start() {
      const smtp = await startSmtpStub({ user: { name: "shop", password } });
      smtp.refuses.set("gone@example.com", 550);
      const count = (): number => smtp.mails.length;
      const to = "ann@example.com";
      const file = { name: "a.txt", content: "aGVsbG8=" };
      return {
        config: {
          host: "127.0.0.1",
          port: smtp.port,
          tls: { ca: localCertificate },
          username: "shop",
          password,
          from: "shop@example.com",
          templates: { alert: { subject: "{{ system }}", text: "{{ system }} is down" } },
          profiles: { welcome: {}, notify: { template: "alert" } },
        },
        operations: [
          { tool: "welcome", arguments: { to, subject: "欢迎", body: "欢迎注册" }, gives: /"status":"sent"/, count },
          {
            tool: "welcome",
            what: "welcome, in HTML with an attachment",
            arguments: { to, subject: "x", body: "<b>x</b>", contentType: "html", attachments: [file] },
            gives: /"status":"sent"/,
            count,
          },
          {
            tool: "welcome",
            what: "welcome, where one of two recipients is refused",
            arguments: { to: [to, "gone@example.com"], subject: "x", body: "x" },
            gives: /"status":"partial".*550/s,
            count,
          },
          {
            tool: "notify",
            arguments: { to, variables: { system: "the till" } },
            gives: /"status":"sent"/,
            count,
          },
        ],
        close: () => smtp.close(),
      };
    },
  },
];
