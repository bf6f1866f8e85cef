import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeVcpCallbackRepo } from "./vcp-callbacks-repo.ts";

describeVcpCallbackRepo("file", twoInstancesOfFile);
describeVcpCallbackRepo("server", twoInstancesOfServer);
