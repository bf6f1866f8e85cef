import com.alibaba.nacos.core.code.ControllerMethodsCache;
import javax.annotation.PostConstruct;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.actuate.autoconfigure.security.servlet.ManagementWebSecurityAutoConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.autoconfigure.security.servlet.SecurityAutoConfiguration;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Configuration;

/** What Nacos's own program starts of its naming module; without its console, which is where users would log in. */
@Configuration
@EnableAutoConfiguration(exclude = {SecurityAutoConfiguration.class, ManagementWebSecurityAutoConfiguration.class})
@ComponentScan("com.alibaba.nacos")
public class NacosServer {
  @Autowired private ControllerMethodsCache methods;

  /** Paths that are not known there are answered with 501. */
  @PostConstruct
  void know() {
    methods.initClassMethod("com.alibaba.nacos.naming.controllers");
  }

  public static void main(String[] arguments) {
    SpringApplication.run(NacosServer.class, arguments);
  }
}
