/** One line for each scheme with services; several fixtures where it has kinds of back ends that differ. */
import type { ToolScheme } from "@toolyard/core/tools/uri";
import { apiFixture } from "./api.ts";
import type { SchemeFixture } from "./fixture.ts";
import { mailFixture } from "./mail.ts";
import { mcpFixture } from "./mcp.ts";
import { ossFixture } from "./oss.ts";
import { smsFixture } from "./sms.ts";
import { mqFixture } from "./mq.ts";
import { svcFixtures } from "./svc.ts";

export const schemeFixtures: { readonly [S in ToolScheme]?: SchemeFixture | readonly SchemeFixture[] } = {
  api: apiFixture,
  mcp: mcpFixture,
  oss: ossFixture,
  mail: mailFixture,
  sms: smsFixture,
  mq: mqFixture,
  svc: svcFixtures,
};
