import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeOAuthRepo } from "./oauth-repo.ts";

describeOAuthRepo("file", twoInstancesOfFile);
describeOAuthRepo("server", twoInstancesOfServer);
