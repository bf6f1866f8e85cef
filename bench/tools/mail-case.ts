/** Mails beside nodemailer, which opens a connection for each mail as well. */
import { createTransport } from "nodemailer";
import { addService, type ToolCase } from "./tool-case.ts";

const mail = { to: "ann@example.com", subject: "Welcome", body: "Glad that you are here." };

export const mailCase: ToolCase = {
  bareClient: "nodemailer",
  async start({ smtpPort }, tenant) {
    await addService(tenant, "mail", "shop", {
      host: "127.0.0.1",
      port: smtpPort,
      security: "none",
      allow_unencrypted: true,
      from: "shop@example.com",
      profiles: { welcome: { description: "Greets a new customer." } },
    });
    const transport = createTransport({ host: "127.0.0.1", port: smtpPort, secure: false, ignoreTLS: true });
    const { to, subject, body: text } = mail;
    return {
      uri: "mail://shop/welcome",
      arguments: mail,
      bare: () => transport.sendMail({ from: "shop@example.com", to, subject, text }),
      close: () => Promise.resolve(transport.close()),
    };
  },
};
